"""The commands, as far as they need no process of their own."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from launcher.cli import app
from launcher.devices import find_device
from launcher.errors import RecipeError


class AskedError(Exception):
    pass


@pytest.mark.parametrize(("card", "error"), [("RTX 3060", AskedError), ("GTX 1650", RecipeError)])
def test_a_forecast_is_judged_by_the_card_that_it_is_for(recipe, monkeypatch, card, error):
    """One trains in fp16, the other returns NaN, and what the CPU that forecasts can do does not matter."""

    def made(path, overrides, device):
        assert device == find_device(card)
        raise AskedError

    monkeypatch.setattr("launcher.forecast.start.forecast", made)
    half = "strategies.mixed_precision.precision=fp16"
    done = CliRunner().invoke(app, ["forecast", str(recipe()), half, "--device", card])
    assert isinstance(done.exception, error)
