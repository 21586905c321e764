"""`launcher plan` as a person and a machine read it."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from launcher.cli import app
from launcher.errors import BudgetError
from launcher.planner.asked import budget_on, find_targets
from launcher.planner.proposal import Proposal
from launcher.units import GIB, MIB
from tests.conftest import ROOT

pytestmark = pytest.mark.usefixtures("plan_here")
GOLDEN = ROOT / "tests" / "golden"
TERMINAL = {"COLUMNS": "110"}


@pytest.fixture
def plan(recipe, monkeypatch, tmp_path):
    """Runs `launcher plan recipe.yaml`; answers with the result and what stands on the terminal."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, **sections):
        recipe(**sections)
        result = CliRunner().invoke(app, ["plan", "recipe.yaml", *arguments], env=TERMINAL)
        return result, "".join(line.rstrip() + "\n" for line in result.stdout.splitlines())

    return run


def golden(name, text):
    assert text == (GOLDEN / name).read_text(encoding="utf-8")


def test_one_plan_in_full(plan):
    arguments = ["--device", "GTX 1650", "--budget", "475MB", "memory.allow=[adafactor]"]
    result, text = plan(*arguments, strategies={"uniform_dynamic_padding": True})
    golden("plan.txt", text)
    assert result.exit_code == 0


def test_several_budgets_are_a_row_each_and_one_that_fits_is_enough(plan):
    result, text = plan("--device", "GTX 1650,RTX 3060", "--budget", "460MB,475MB,1GB")
    golden("plans.txt", text)
    assert result.exit_code == 0


def test_nothing_that_fits_is_exit_code_2_with_the_reasons(plan):
    result, text = plan("--device", "GTX 1650", "--budget", "460MB")
    assert text == ""
    assert isinstance(result.exception, BudgetError)
    assert result.exception.exit_code == 2
    result, text = plan("--device", "GTX 1650", "--budget", "450MB,460MB")
    assert text.count("does not fit") == 2
    assert isinstance(result.exception, BudgetError)


def test_a_machine_gets_all_of_it(plan):
    result, text = plan("--device", "GTX 1650", "--budget", "460MB,1GB", "--json")
    refused, found = json.loads(text)
    assert result.exit_code == 0
    assert set(refused) == {"kind", "where", "problems"}
    assert refused["kind"] == "BudgetError"
    assert set(found) == set(Proposal.__dataclass_fields__)
    assert found["budget"] == GIB
    assert Proposal.from_json(found).as_json() == Proposal.from_json(json.loads(json.dumps(found))).as_json()


def test_the_command_that_is_named_trains_within_that_budget(plan, recipe):
    from launcher.check import check

    _, text = plan("--device", "GTX 1650", "--budget", "1GB", "training.batch_size=12")
    (command,) = [line for line in text.splitlines() if line.startswith("train: ")]
    assert command == "train: accelerate launch launcher/run.py recipe.yaml training.batch_size=12 memory.budget=1GB"
    _, text = plan("--device", "GTX 1650", "--budget", "999999KB", "training.batch_size=12")
    (command,) = [line for line in text.splitlines() if line.startswith("train: ")]
    job = check(recipe(), [command.split()[-1]])
    assert job.recipe.memory.budget == 999999 * 1024


def test_without_a_budget_it_is_the_recipes_else_what_the_card_has(recipe):
    from launcher.check import check
    from launcher.devices import find_device

    card = find_device("GTX 1650")
    assert find_targets(check(recipe()), [card], None) == [(card, 4 * GIB)]
    stated = check(recipe(memory={"budget": "300MB"}))
    assert find_targets(stated, [card], None) == [(card, 300 * MIB)]
    assert find_targets(stated, [card], "1GB,auto") == [(card, GIB), (card, 4 * GIB)]
    assert 0 < budget_on(find_device("cpu"), "auto", is_here=False) < 2**50


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--budget", "4"], "'4' is not a memory size such as 4GB or 900MB"),
        (["--device", "GTX 9999"], "'GTX 9999' is not in the table of cards"),
    ],
)
def test_a_mistake_on_the_command_line_is_told(plan, arguments, told):
    result, _ = plan(*arguments)
    assert told in str(result.exception)
    assert result.exception.exit_code == 2
