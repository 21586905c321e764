"""From a budget to a proposal on the tiny model: nothing, smaller micro-batches, checkpointing, or why not."""

from __future__ import annotations

import json
import re

import pytest
from accelerate.state import AcceleratorState

from launcher.build import make_cutter
from launcher.check import check
from launcher.errors import BudgetError, DataError
from launcher.forecast.assumed import CONTEXT_BYTES, MARGINS
from launcher.planner.proposal import Proposal
from launcher.planner.propose import propose
from launcher.units import GIB, KIB, MIB
from tests.conftest import ROOT

GOLDEN = ROOT / "tests" / "golden"
GENEROUS, LESS, TIGHT, TOO_SMALL = 10 * MIB, 4 * MIB, int(1.5 * MIB), int(1.25 * MIB)


def golden(name, text):
    assert text == (GOLDEN / name).read_text(encoding="utf-8")


def test_a_generous_budget_sets_nothing(ground):
    found = propose(ground(), GENEROUS)
    assert found.strategies == {}
    assert [step.name for step in found.ladder] == ["the recipe as it stands"]
    assert found.micro_batches_per_update == 1.0


def test_a_smaller_one_cuts_updates_into_micro_batches_and_changes_nothing_else(ground):
    found = propose(ground(), LESS)
    assert list(found.strategies) == ["gradient_accumulation"]
    assert found.micro_batches_per_update > 1


def test_a_tight_one_recomputes_activations_too(ground):
    assert list(propose(ground(), TIGHT).strategies) == ["gradient_accumulation", "gradient_checkpointing"]


def test_more_memory_is_never_slower(ground):
    stand = ground()
    seconds = [propose(stand, budget).seconds_per_epoch for budget in (TIGHT, 2 * MIB, LESS, GENEROUS)]
    assert seconds == sorted(seconds, reverse=True)


@pytest.mark.parametrize("budget", [GENEROUS, LESS, TIGHT])
def test_a_proposal_adds_up(ground, budget):
    found = propose(ground(), budget)
    assert found.total == found.ladder[-1].bytes == found.forecast.peak.size
    assert found.total + found.margin <= found.budget == budget
    assert found.margin == round(budget * MARGINS["cpu"])
    assert found.ladder[-1].seconds == pytest.approx(found.seconds_per_epoch)
    assert found.updates_per_epoch == 3  # 56 texts in updates of 24
    assert sum(found.forecast.peak.rows.values()) == found.forecast.peak.size
    again = Proposal.from_json(json.loads(json.dumps(found.as_json())))
    assert again == found
    assert again.chosen() == found.chosen()


def test_on_a_card_the_context_and_what_the_allocator_takes_count(ground):
    found = propose(ground("GTX 1650"), GIB)
    assert found.context == CONTEXT_BYTES
    assert found.total == found.forecast.reserved + CONTEXT_BYTES
    assert found.margin == round(GIB * MARGINS["cuda"])
    assert Proposal.from_json(json.loads(json.dumps(found.as_json()))) == found


def test_a_card_smaller_than_its_context_holds_nothing(ground):
    with pytest.raises(BudgetError, match="nothing that is allowed fits on GTX 1650: the least is 47"):
        propose(ground("GTX 1650"), 400 * MIB)


def test_too_small_a_budget_names_what_takes_it_and_the_cheapest_permission(ground):
    with pytest.raises(BudgetError) as refused:
        propose(ground(), TOO_SMALL)
    golden("budget_too_small.txt", f"{refused.value}\n")
    assert refused.value.exit_code == 2


def test_where_no_permission_helps_it_says_so(ground):
    with pytest.raises(BudgetError) as refused:
        propose(ground(), 500 * KIB)
    golden("budget_without_hope.txt", f"{refused.value}\n")


def test_the_permission_that_is_named_makes_it_fit(ground):
    with pytest.raises(BudgetError) as refused:
        propose(ground(), TOO_SMALL)
    allow = re.search(r"memory\.allow: \[(.*?)\] would make it fit", refused.value.problems[-1])[1].split(", ")
    found = propose(ground(memory={"allow": allow}), TOO_SMALL)
    assert set(allow) <= set(found.strategies)
    assert found.total <= TOO_SMALL


def test_the_budget_that_is_named_as_the_least_is(ground):
    """To what the message's digits say, and to the percent by which its surface may be off."""
    stand = ground()
    with pytest.raises(BudgetError) as refused:
        propose(stand, TOO_SMALL)
    least = float(re.search(r"the least is ([\d.]+) MiB", refused.value.problems[0])[1])
    assert propose(stand, int(1.01 * (least + 0.05) * MIB)).strategies
    with pytest.raises(BudgetError):
        propose(stand, int(0.99 * (least - 0.05) * MIB))


@pytest.mark.parametrize("allowed", ["adafactor", "eight_bit_optimizer", "freezing"])
def test_leave_is_used_where_it_is_needed(ground, allowed):
    budget = TOO_SMALL
    assert allowed in propose(ground(memory={"allow": [allowed]}), budget).strategies


def test_leave_is_not_used_where_the_plan_without_is_as_fast(ground):
    found = propose(ground(memory={"allow": ["adafactor", "freezing", "max_length"]}), GENEROUS)
    assert found.strategies == {}


@pytest.mark.parametrize("budget", [GENEROUS, LESS, TIGHT])
def test_without_leave_nothing_that_changes_training_is_set(ground, budget):
    found = propose(ground(), budget)
    assert all(strategy.cost == "slower" for strategy in found.chosen().values())


def test_what_the_recipe_switches_off_stays_off(ground):
    with pytest.raises(BudgetError):
        propose(ground(strategies={"gradient_checkpointing": False}), TIGHT)
    whole = ground(strategies={"gradient_accumulation": False})
    assert list(propose(whole, 8 * MIB).strategies) == ["gradient_checkpointing"]
    with pytest.raises(BudgetError) as refused:
        propose(whole, LESS)
    assert "one text at a time" not in str(refused.value)


def test_texts_are_cut_as_the_last_resort(ground, long_texts):
    stand = ground(**long_texts, memory={"allow": ["max_length"]})
    assert "max_length" not in propose(stand, 6 * MIB).strategies
    found = propose(stand, 4 * MIB)
    assert found.strategies["max_length"] == {"tokens": 256}
    assert found.total <= 4 * MIB
    # Cut before micro-batches, which do not hold the longest.
    assert [step.name.split()[1] for step in found.ladder[1:]] == ["max_length", "micro-batches"]
    assert found.ladder[-1].bytes == found.total
    # Above the longest text it is no use, and so not taken.
    assert "max_length (tokens 384): needs a budget of" in "\n".join(found.rejected)


def test_a_model_that_reads_few_tokens_is_measured_within_them(ground, few_positions):
    assert propose(ground(model={"source": str(few_positions)}), LESS).total <= LESS


def test_texts_of_very_few_tokens_are_planned(ground, tmp_path):
    rows = "".join(json.dumps({"text": "good", "label": label}) + "\n" for label in ["a", "b"] * 20)
    (tmp_path / "short.jsonl").write_text(rows, encoding="utf-8")
    stand = ground(data={"train": str(tmp_path / "short.jsonl")}, strategies={"gradient_checkpointing": False})
    smallest = propose(stand, int(1.45 * MIB))
    assert smallest.strategies["gradient_accumulation"]["tokens"] < 24 * 3


def test_micro_batches_of_the_recipe_that_are_too_small_for_a_text_are_its_mistake(ground):
    with pytest.raises(DataError, match="the longest text takes 42 tokens, a micro-batch 20"):
        ground(strategies={"gradient_accumulation": {"tokens": 20}})


def test_the_run_cuts_by_the_plans_own_costs(ground, recipe):
    from launcher.plan import make_plan
    from launcher.processes import start_form

    found = propose(ground(strategies={"uniform_dynamic_padding": True}), LESS)
    job = check(recipe(strategies={"uniform_dynamic_padding": True}))
    plan = make_plan(job, found.chosen(), found.cost)
    stand = ground(strategies={"uniform_dynamic_padding": True})
    AcceleratorState._reset_state(reset_partial_state=True)
    cutter = make_cutter(
        plan, start_form(plan).accelerator, stand.lengths(plan), stand.padding(plan), stand.loaded.config
    )
    assert cutter.cost == found.cost
    assert cutter.limits == plan.limits
    limit = found.strategies["gradient_accumulation"]
    assert (cutter.limits.tokens, cutter.limits.attention) == (limit["tokens"], limit["attention"])
