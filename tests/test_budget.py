"""A run within a budget: planned, held to it, and the forecast beside the fact."""

from __future__ import annotations

import json

import pytest
import torch
from accelerate.state import AcceleratorState

from launcher import calibration
from launcher.budget import cap, plan_for_budget
from launcher.check import check
from launcher.devices import find_device
from launcher.errors import BudgetError, MemoryExceededError
from launcher.pipeline import run
from launcher.units import MIB

pytestmark = [
    pytest.mark.usefixtures("plan_here"),
    pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning"),  # torch without a card, in pipeline
]
HELD = {"validation": {"share": 0.25}}
UNIFORM = {"uniform_dynamic_padding": True}


@pytest.fixture
def train(recipe):
    """Runs a recipe to the end; returns its plan and its results."""

    def start(**sections):
        AcceleratorState._reset_state(reset_partial_state=True)
        folder = run(check(recipe(**sections)))
        return [json.loads((folder / f"{name}.json").read_text()) for name in ("plan", "results")]

    return start


def test_a_run_within_a_budget_stays_below_it_and_its_forecast_is_the_fact(train, capsys):
    plan, results = train(data=HELD, memory={"budget": "2MB"}, strategies=UNIFORM, training={"updates": 4})
    assert results["budget"] == {"bytes": 2 * MIB, "peak": results["budget"]["peak"], "kept": True}
    assert results["budget"]["peak"] < 2 * MIB
    assert set(results["forecast"]) == {"load", "train", "evaluate"}
    assert results["budget"]["peak"] == max(sizes["fact"] for sizes in results["forecast"].values())
    assert results["forecast"]["train"]["forecast"] == plan["budget"]["total"]
    for phase in ("load", "train"):
        sizes = results["forecast"][phase]
        assert sizes["forecast"] == pytest.approx(sizes["fact"], rel=0.01), phase
    assert results["forecast"]["evaluate"]["fact"] <= 1.01 * results["forecast"]["evaluate"]["forecast"]
    told = " ".join(capsys.readouterr().out.split())
    assert "plan: 1.9 MiB of 2.0 MiB forecast" in told
    assert "budget 2.0 MiB kept: the peak was 1.9 MiB" in told
    assert "Forecast beside fact" in told


def test_the_run_trains_by_the_plan_that_it_shows(train):
    plan, _ = train(memory={"budget": "2MB"}, strategies=UNIFORM)
    planned = plan["budget"]["strategies"]
    assert set(planned) <= set(plan["strategies"])
    assert all(plan["strategies"][key] == fields for key, fields in planned.items())
    assert plan["cost"] == plan["budget"]["cost"]
    assert plan["limits"]["tokens"] == planned["gradient_accumulation"]["tokens"]
    assert "gradient_accumulation: the plan's, to stay below the budget in the least time" in plan["reasons"]


def test_a_budget_changes_memory_and_not_what_is_learned(train):
    losses = []
    for memory in ({}, {"budget": "1600KB"}):
        _, results = train(data=HELD, memory=memory, training={"updates": 4})
        losses.append(results["metrics"]["loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_each_run_leaves_its_figures_for_later_plans(train):
    plan, results = train(data=HELD, memory={"budget": "2MB"}, training={"updates": 3})
    (line,) = calibration.calibration_file().read_text().splitlines()
    record = json.loads(line)
    assert record["device"] == "CPU"
    assert record["torch"] == torch.__version__
    for phase, sizes in results["forecast"].items():
        assert record["bytes"][phase] == [sizes["forecast"], sizes["fact"]]
    predicted, seconds = record["seconds_per_update"]
    assert predicted == pytest.approx(plan["budget"]["seconds_per_epoch"] / plan["budget"]["updates_per_epoch"])
    shown = calibration.calibration_of("CPU")
    assert (shown.runs, shown.time) == (1, pytest.approx(seconds / predicted))
    again, _ = train(data=HELD, memory={"budget": "2MB"}, training={"updates": 3})
    assert again["budget"]["calibration"]["runs"] == 1
    later = json.loads(calibration.calibration_file().read_text().splitlines()[1])["seconds_per_update"]
    assert later[0] == pytest.approx(predicted)  # the roofline's own, not what the first run has made of it


def test_a_budget_in_which_nothing_fits_ends_before_anything_is_loaded(recipe, monkeypatch, tmp_path):
    monkeypatch.setattr("launcher.pipeline.load_data", lambda plan: pytest.fail("loaded"))
    with pytest.raises(BudgetError, match="nothing that is allowed fits on CPU"):
        run(check(recipe(memory={"budget": "900KB"})))
    assert not (tmp_path / "runs").exists()


def test_a_run_that_takes_more_than_its_plan_is_out_of_memory(recipe, monkeypatch):
    """The plan is believed; the card is not asked how much it had been planned for."""
    from dataclasses import replace

    from launcher import pipeline

    plan = pipeline.plan_for_budget
    monkeypatch.setattr(pipeline, "plan_for_budget", lambda job: replace(plan(job), budget=int(1.5 * MIB)))
    with pytest.raises(MemoryExceededError, match=r"out of memory with micro-batches of up to \d+ x 4\d tokens"):
        run(check(recipe(memory={"budget": "2MB"})))


def test_without_a_budget_nothing_is_planned(recipe):
    assert plan_for_budget(check(recipe())) is None
    assert plan_for_budget(check(recipe(), processes=2)) is None


def test_auto_is_what_is_free(recipe, monkeypatch):
    monkeypatch.setattr("launcher.planner.asked.free_memory", lambda device: 7 * MIB)
    proposal = plan_for_budget(check(recipe(memory={"budget": "auto"})))
    assert proposal.budget == 7 * MIB
    assert list(proposal.strategies) == ["gradient_accumulation"]


def test_on_a_card_torchs_own_limit_is_the_budget_less_the_context(recipe, monkeypatch):
    from dataclasses import replace
    from types import SimpleNamespace

    proposal = replace(
        plan_for_budget(check(recipe(memory={"budget": "9MB"}))),
        device=find_device("GTX 1650"),
        budget=1000 * MIB,
        context=200 * MIB,
    )
    shares = []
    card = SimpleNamespace(total_memory=4000 * MIB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share, device: shares.append((share, device))
    )
    assert cap(proposal, torch.device("cuda:3")) is None
    assert shares == [(0.2, torch.device("cuda:3"))]
