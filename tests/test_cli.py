"""The commands, as far as they need no process of their own."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from launcher import cli
from launcher.cli import app
from launcher.devices import find_device
from launcher.errors import LaunchError, RecipeError


class AskedError(Exception):
    pass


@pytest.mark.parametrize(("card", "error"), [("RTX 3060", AskedError), ("GTX 1650", RecipeError)])
def test_a_forecast_is_judged_by_the_card_that_it_is_for(recipe, monkeypatch, card, error):
    """One trains in fp16, the other returns NaN, and what the CPU that forecasts can do does not matter."""

    def made(path, overrides, device, processes):
        assert device == find_device(card)
        raise AskedError

    monkeypatch.setattr("launcher.forecast.start.forecast", made)
    half = "strategies.mixed_precision.precision=fp16"
    done = CliRunner().invoke(app, ["forecast", str(recipe()), half, "--device", card])
    assert isinstance(done.exception, error)


@pytest.mark.parametrize(
    "sign", [{"WORLD_SIZE": "2"}, {"TORCHELASTIC_RUN_ID": "none"}, {"ACCELERATE_MIXED_PRECISION": "no"}]
)
def test_a_command_that_a_launcher_has_started_is_one_of_its_processes(recipe, monkeypatch, sign):
    for name, value in sign.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("launcher.start.default_processes", None)
    monkeypatch.setattr(cli, "worker", lambda arguments: len(arguments))
    path = str(recipe())
    assert CliRunner().invoke(app, ["run", path, "training.updates=1"]).exit_code == len([path, "training.updates=1"])
    done = CliRunner().invoke(app, ["run", path, "--processes", "4"])
    assert isinstance(done.exception, LaunchError)
    started = sign.get("WORLD_SIZE", "1")
    assert done.exception.problems == (f"--processes 4, and {started} have been started already; leave it out",)


@pytest.mark.parametrize(("rank", "waited"), [("0", []), ("1", [cli.SECONDS_TO_SPEAK])])
def test_a_mistake_that_one_process_alone_has_met_is_told_too(monkeypatch, capsys, rank, waited):
    """The first of a machine speaks at once; what another tells comes after it would have been ended."""
    monkeypatch.setenv("LOCAL_RANK", rank)
    slept = []
    monkeypatch.setattr("time.sleep", slept.append)
    assert cli.tell(LaunchError("launch", ["no disk"])) == 2
    assert capsys.readouterr().err == "launch: 1 problem\n  no disk\n"
    assert slept == waited
