"""Out of memory all the same: what is advised starts the same run with smaller micro-batches."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import replace

import pytest
import torch

from launcher import cli, hand_over, out_of_memory
from launcher.check import check
from launcher.errors import MemoryExceededError
from launcher.out_of_memory import MOST_RELAUNCHES, can_relaunch, memory_exceeded, relaunch
from launcher.plan import make_plan
from launcher.strategies import ALL

FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has a total ...")
STATED = {
    "nothing": {},
    "a limit of tokens": {"gradient_accumulation": {"tokens": 300, "attention": 0.001}},
    "a limit of examples": {"gradient_accumulation": {"micro_batch": 6}},
    "steps": {"gradient_accumulation": {"steps": 2}},
    "others": {"freezing": {"embeddings": True, "patterns": ["*.bias"]}, "gradient_checkpointing": True},
    "switched off": {"gradient_checkpointing": False, "uniform_dynamic_padding": False},
    "padded by eights": {"uniform_dynamic_padding": {"multiple_of": 8}},
}


@pytest.fixture(autouse=True)
def no_relaunches(monkeypatch):
    for name in (out_of_memory._RELAUNCHES, hand_over._PLACE):
        monkeypatch.setenv(name, "")  # so that what a test leaves behind is taken away again
        monkeypatch.delenv(name)


def worst_size(session):
    worst = session.cutter.worst(24).examples
    return len(worst) * session.cutter.limits.size(session.cutter.padded_length(worst))


@pytest.mark.parametrize("name", STATED)
def test_the_advice_is_read_back_as_the_same_choices_with_a_smaller_limit(build, recipe, name):
    session = build(strategies=STATED[name])
    error = memory_exceeded(session, FULL)
    plan = make_plan(check(recipe(strategies=STATED[name]), error.overrides))
    others = [{s.key: s for s in some.strategies if s.key != "gradient_accumulation"} for some in (session.plan, plan)]
    assert others[0] == others[1]
    again = replace(session.cutter, limits=plan.limits)
    assert again.too_long() is None
    worst = again.worst(24).examples
    assert len(worst) * plan.limits.size(again.padded_length(worst)) <= 0.76 * worst_size(session)


def test_what_was_not_chosen_is_not_chosen_the_next_time_either(build):
    """A plan for the same budget must not take another way."""
    error = memory_exceeded(build(), FULL)
    named = {one.partition("=")[0].removeprefix("strategies.") for one in error.overrides}
    assert {cls.key for cls in ALL if cls.cost != "free"} == named


def test_a_plans_own_choices_are_stated_with_their_settings(build, recipe):
    from launcher.strategies.gradient_accumulation import GradientAccumulation
    from launcher.strategies.gradient_checkpointing import GradientCheckpointing

    session = build()
    chosen = {
        "gradient_accumulation": GradientAccumulation(tokens=400, attention=0.0012345),
        "gradient_checkpointing": GradientCheckpointing(every_n_layers=2),
    }
    plan = make_plan(check(recipe()), chosen)
    session.plan, session.cutter = plan, replace(session.cutter, limits=plan.limits)
    error = memory_exceeded(session, FULL)
    found = check(recipe(), error.overrides).recipe.strategies
    assert found.gradient_checkpointing.every_n_layers == 2
    assert found.gradient_accumulation.attention == pytest.approx(0.0012345, abs=1e-6)
    assert found.gradient_accumulation.tokens < 400


def test_it_gets_to_one_text_at_a_time_and_then_says_that_even_that_is_too_much(build, recipe):
    sizes, overrides = [], ()
    for _ in range(40):
        session = build()
        plan = make_plan(check(recipe(), overrides))
        session.plan, session.cutter = plan, replace(session.cutter, limits=plan.limits)
        sizes.append(len(session.cutter.worst(24).examples))
        error = memory_exceeded(session, FULL)
        if not error.overrides:
            break
        overrides = error.overrides
    assert sizes[0] == 24
    assert sizes[-1] == 1
    assert all(after < before for before, after in itertools.pairwise(sizes))
    assert "one text alone does not fit; allow more by memory.allow" in str(error)
    assert not can_relaunch(error)


def test_smaller_micro_batches_still_hold_the_longest_text(build, recipe, tmp_path):
    """Four short texts were too much; three quarters of them are less than the one long text."""
    rows = [{"text": " ".join(["room"] * words), "label": "ab"[words > 20]} for words in [14] * 39 + [55]]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    sections = {
        "data": {"train": str(tmp_path / "rows.jsonl")},
        "strategies": {"uniform_dynamic_padding": True, "gradient_accumulation": {"tokens": 64}},
    }
    session = build(**sections)
    plan = make_plan(check(recipe(**sections), memory_exceeded(session, FULL).overrides))
    assert plan.limits.tokens == 57
    assert replace(session.cutter, limits=plan.limits).too_long() is None


def test_the_message_names_the_size_the_reason_and_what_to_add(build):
    error = memory_exceeded(build(), FULL)
    first, second = error.problems
    assert first == "out of memory with micro-batches of up to 24 x 42 tokens: CUDA out of memory. " + (
        "Tried to allocate 2.00 GiB."
    )
    assert second.startswith("the same update in smaller micro-batches: add 'strategies.gradient_accumulation={tokens")
    assert error.exit_code == 12


def test_after_some_relaunches_it_stays_ended(monkeypatch):
    error = MemoryExceededError("memory", ["full"], ["strategies.gradient_accumulation={tokens: 9}"])
    for number in range(MOST_RELAUNCHES + 1):
        monkeypatch.setenv(out_of_memory._RELAUNCHES, json.dumps(["full"] * number))
        assert can_relaunch(error) == (number < MOST_RELAUNCHES)


def test_a_relaunch_replaces_what_was_said_of_the_same_strategies(monkeypatch, tmp_path):
    started = []
    monkeypatch.setattr(os, "execv", lambda program, arguments: started.append(arguments))
    monkeypatch.setenv(out_of_memory._RELAUNCHES, "[]")
    error = MemoryExceededError("memory", ["full", "more"], ["strategies.gradient_accumulation={tokens: 9}"])
    kept = ["training.updates=3", "memory.budget=2MB"]
    given = ["training.updates=3", "strategies.gradient_accumulation.tokens=100", "memory.budget=2MB"]
    relaunch(tmp_path / "r.yaml", given, 2, error)
    asked = ["-m", "launcher", "run", "--processes", "2", str(tmp_path / "r.yaml"), *kept, *error.overrides]
    assert started[0][1:] == asked
    assert out_of_memory.relaunches() == ["full"]


def full_at(size):
    """Stands for a run on a card that holds no micro-batch above so many examples."""

    def run(job):
        raise MemoryExceededError("memory", [f"out of memory above {size}"], ["training.seed=1"])

    return run


def test_a_bare_launch_ends_with_12_and_the_advice(recipe, monkeypatch, capsys):
    monkeypatch.setattr("launcher.pipeline.run", full_at(4))
    assert cli.worker([str(recipe())]) == 12
    assert capsys.readouterr().err == "memory: 1 problem\n  out of memory above 4\n"


def test_a_parent_takes_over_what_a_process_hands_over(recipe, monkeypatch, tmp_path):
    monkeypatch.setattr("launcher.pipeline.run", full_at(4))
    place = tmp_path / "answer.json"
    assert hand_over.take_over(place) is None
    monkeypatch.setenv(hand_over._PLACE, str(place))
    assert cli.worker([str(recipe())]) == 12
    error = hand_over.take_over(place)
    assert (error.where, error.problems, error.overrides) == (
        "memory",
        ("out of memory above 4",),
        ("training.seed=1",),
    )
    assert [entry.name for entry in tmp_path.glob("answer*")] == ["answer.json"]


def test_processes_that_ran_out_of_memory_are_started_again(monkeypatch, tmp_path):
    from launcher import start

    def launched(arguments):
        hand_over.hand_over(MemoryExceededError("memory", ["full"], ["training.seed=1"]))
        return 12

    monkeypatch.setattr(start, "_launched", launched)
    monkeypatch.setattr(start, "_gpus", lambda: 0)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "false")
    with pytest.raises(MemoryExceededError, match="full") as error:
        start.start_processes(tmp_path / "r.yaml", [], 2)
    assert error.value.overrides == ("training.seed=1",)
