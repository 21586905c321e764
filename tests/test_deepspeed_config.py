"""DeepSpeed's configuration: resolved from the recipe, and a person's own file beside it."""

from __future__ import annotations

import json

import pytest

from launcher.check import check
from launcher.deepspeed_config import deepspeed_config
from launcher.errors import RecipeError
from launcher.plan import make_plan

STEPS = {"gradient_accumulation": {"steps": 4}}


@pytest.fixture
def resolved(recipe, tmp_path):
    """Of a recipe whose folder holds the given file, for two processes."""

    def make(own=None, zero=None, **strategies):
        zero = {"stage": 2} | (zero or {})
        if own is not None:
            (tmp_path / "ds.json").write_text(json.dumps(own))
            zero["config"] = "ds.json"
        plan = make_plan(check(recipe(strategies={"zero": zero} | strategies), processes=2))
        config, problems = deepspeed_config(plan.recipe, plan.settings, plan.processes)
        assert problems == []
        return config

    return make


def test_an_own_file_adds_what_the_recipe_has_no_word_for(resolved):
    config = resolved({"wall_clock_breakdown": True, "zero_optimization": {"reduce_bucket_size": 1000}})
    expected = resolved()
    expected |= {"wall_clock_breakdown": True}
    expected["zero_optimization"] |= {"reduce_bucket_size": 1000}
    assert config == expected


@pytest.mark.parametrize(
    "own",
    [
        {"train_batch_size": 24, "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 4},
        {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"},
        {"gradient_clipping": 1.0, "zero_optimization": {"stage": 2}},
    ],
)
def test_an_own_file_that_says_what_the_recipe_says_changes_nothing(resolved, own):
    """The formal numbers above all: DeepSpeed would divide by its steps once more."""
    assert resolved(own, **STEPS) == resolved(**STEPS)


def test_an_own_file_names_the_batch_size_of_the_recipe_where_processes_do_not_divide_it(recipe, tmp_path):
    """DeepSpeed's own is rounded up then."""
    (tmp_path / "ds.json").write_text('{"train_batch_size": 25}')
    path = recipe(strategies={"zero": {"config": "ds.json"}}, training={"batch_size": 25})
    plan = make_plan(check(path, processes=2))
    config, problems = deepspeed_config(plan.recipe, plan.settings, plan.processes)
    assert (config["train_batch_size"], problems) == (26, [])


def test_an_own_file_named_on_the_command_line_lies_where_that_is_typed(recipe, tmp_path, monkeypatch):
    shell = tmp_path / "elsewhere"
    shell.mkdir()
    (shell / "ds.json").write_text('{"wall_clock_breakdown": true}')
    monkeypatch.chdir(shell)
    plan = make_plan(check(recipe(), ["strategies.zero.config=ds.json"], processes=2))
    assert deepspeed_config(plan.recipe, plan.settings, plan.processes)[0]["wall_clock_breakdown"] is True


def test_what_a_run_has_written_is_accepted_as_an_own_file(resolved):
    assert resolved(resolved(**STEPS), **STEPS) == resolved(**STEPS)


@pytest.mark.parametrize(
    ("own", "problem"),
    [
        ({"train_batch_size": 48}, "train_batch_size is 48 here, and 24 by the recipe (training.batch_size)"),
        (
            {"gradient_accumulation_steps": 2},
            "gradient_accumulation_steps is 2 here, and 4 by the recipe (strategies.gradient_accumulation)",
        ),
        (
            {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}},
            "zero_optimization.offload_optimizer.device is 'cpu' here, and 'none' by the recipe"
            " (strategies.zero.offload)",
        ),
        ({"zero_optimization": 2}, "zero_optimization is 2 here, not a mapping"),
        ({"optimizer": {"type": "Adam"}}, "optimizer: leave it out: the recipe chooses it by strategies"),
        (
            {"bf16": {"enabled": True}},
            "bf16.enabled is True here, and False by the recipe"
            " (strategies.mixed_precision computes in half precision and keeps float32 weights)",
        ),
    ],
)
def test_an_own_file_that_says_something_else_is_told_by_check(resolved, own, problem):
    with pytest.raises(RecipeError) as error:
        resolved(own, **STEPS)
    assert [told.partition("zero.config: ")[2] for told in error.value.problems] == [problem]
