"""What the planner may set: by the recipe's word, the strategies' costs, conflicts, and the device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launcher.devices import find_device
from launcher.job import Job
from launcher.model_source import ModelFacts
from launcher.planner.combinations import Combination, combinations, describe, last_resorts, may_choose
from launcher.read_recipe import read_recipe
from launcher.strategies import ALL
from launcher.strategies.freezing import Freezing
from launcher.strategies.gradient_checkpointing import GradientCheckpointing
from tests.conftest import ROOT

GOOD = ROOT / "tests" / "broken" / "good.yaml"
EVERYTHING = [cls.key for cls in ALL if cls.cost == "changes_training"]


def job(*overrides, device="RTX 3090", layers=12):
    recipe, _ = read_recipe(GOOD, overrides)
    facts = ModelFacts(Path(), {"num_hidden_layers": layers})
    return Job(recipe, facts, 1, find_device(device))


def keys(job, *allowed):
    return [{strategy.key for strategy in one.strategies} for one in combinations(job, allowed)[0]]


def test_without_leave_only_what_is_slower_is_tried():
    offload, checkpointing = "optimizer_offload", "gradient_checkpointing"
    assert keys(job()) == [set(), {checkpointing}, {offload}, {offload, checkpointing}]
    assert list(last_resorts(job(), ())) == [[()]]


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.key)
def test_what_changes_training_needs_leave_and_what_is_free_is_on_already(cls):
    may = {"free": (False, False), "slower": (True, True), "changes_training": (False, True)}[cls.cost]
    assert (may_choose(cls, job(), []), may_choose(cls, job(), [cls.key])) == may


@pytest.mark.parametrize("cls", [cls for cls in ALL if cls.cost != "free"], ids=lambda cls: cls.key)
@pytest.mark.parametrize("is_on", [True, False])
def test_what_the_recipe_has_decided_is_not_decided_again(cls, is_on):
    fields = str(cls.example).replace("'", "") if is_on else "false"
    decided = job(f"strategies.{cls.key}={fields}")
    assert not may_choose(cls, decided, EVERYTHING)
    assert not any(cls.key in one for one in keys(decided, *EVERYTHING))


def test_leave_for_one_is_no_leave_for_another():
    assert {key for one in keys(job(), "adafactor") for key in one} == {
        "adafactor",
        "gradient_checkpointing",
        "optimizer_offload",
    }


def test_what_excludes_each_other_is_never_tried_together():
    for one in keys(job(), *EVERYTHING):
        assert len(one & {"adafactor", "eight_bit_optimizer", "optimizer_offload"}) <= 1


def test_what_excludes_the_recipes_own_choice_is_not_tried():
    own = keys(job("strategies.adafactor=true"), *EVERYTHING)
    assert not any(one & {"eight_bit_optimizer", "optimizer_offload"} for one in own)


@pytest.mark.parametrize(
    ("device", "forms", "refusal"),
    [
        ("RTX 3090", {"bf16", "fp16"}, None),
        ("T4", {"fp16"}, "mixed_precision (precision bf16): T4 has capability 7.5 and only emulates bf16"),
        ("GTX 1650", set(), "mixed_precision (precision fp16): GTX 1650 returns NaN in fp16"),
        ("cpu", {"bf16"}, "mixed_precision (precision fp16): a CPU trains in bf16 or float32, not in fp16"),
    ],
)
def test_precisions_are_those_of_the_device_planned_for(device, forms, refusal):
    found, left_out = combinations(job(device=device), ["mixed_precision"])
    assert {s.precision for one in found for s in one.strategies if s.key == "mixed_precision"} == forms
    assert refusal is None or any(line.startswith(refusal) for line in left_out)


def test_states_are_not_moved_off_a_cpu():
    assert keys(job(device="cpu")) == [set(), {"gradient_checkpointing"}]


def test_last_resorts_come_level_by_level_the_gentlest_first():
    levels = list(last_resorts(job(), ["freezing", "max_length"]))
    assert levels[0] == [()]
    assert [[" + ".join(map(describe, one)) for one in level] for level in levels[1:3]] == [
        ["max_length (tokens 384)", "freezing (embeddings true)"],
        [
            "max_length (tokens 256)",
            "freezing (embeddings true) + max_length (tokens 384)",
            "freezing (embeddings true, first_layers 3)",
        ],
    ]
    # The hardest of both stands alone at the end.
    assert [list(map(describe, one)) for one in levels[-1]] == [
        ["freezing (embeddings true, first_layers 9)", "max_length (tokens 64)"]
    ]
    every = [one for level in levels for one in level]
    assert len(every) == (1 + 4) * (1 + 6)
    assert len({str(one) for one in every}) == len(every)


def test_last_resorts_are_not_among_the_rest():
    assert not any(one & {"freezing", "max_length"} for one in keys(job(), *EVERYTHING))


def test_a_model_whose_layers_are_not_known_is_frozen_by_its_embeddings_alone():
    (_, gentlest) = list(last_resorts(replace(job(), model=None), ["freezing"]))
    assert list(map(describe, gentlest[0])) == ["freezing (embeddings true)"]


def test_a_combination_counts_what_it_changes_and_names_itself():
    both = Combination((Freezing(embeddings=True), GradientCheckpointing(every_n_layers=2)))
    assert both.changes == 1
    assert both.name == "freezing (embeddings true) + gradient_checkpointing (every_n_layers 2)"
    assert Combination().name == "nothing besides"
