"""Runs with a budget as people start them: kept, refused, and started again after out of memory."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.launches.commands import ACCELERATE, ONE, ROOT, RUN, start

pytestmark = pytest.mark.launch
JOB = str(Path(__file__).with_name("short_of_memory_job.py"))
LAUNCHER = [sys.executable, "-m", "launcher"]


def content(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


def test_a_run_that_is_out_of_memory_is_started_again_with_smaller_micro_batches(recipe, tmp_path):
    path = recipe(data={"validation": {"share": 0.2}}, memory={"budget": "2MB"})
    done = start([sys.executable, JOB, "0.9", str(path), "training.updates=3"], cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count("starting again with smaller micro-batches") == 1
    assert "Traceback" not in done.stderr
    short, whole = (tmp_path / "runs" / name for name in ("tiny", "tiny-2"))
    assert not (short / "results.json").exists()
    results = content(whole, "results")
    assert results["updates"] == 3
    assert results["budget"]["kept"]
    assert len(results["relaunches"]) == 1
    assert re.match(r"out of memory with micro-batches of up to \d+ x 42 tokens", results["relaunches"][0])
    assert "started again, with smaller micro-batches, after: out of memory" in done.stdout
    before, after = (content(folder, "plan") for folder in (short, whole))
    assert set(before["strategies"]) == set(after["strategies"])
    assert after["limits"]["tokens"] < before["limits"]["tokens"]


def test_a_budget_is_refused_before_anything_starts(recipe, tmp_path):
    path = recipe(memory={"budget": "900KB"})
    for command in ([*LAUNCHER, "run"], [*ACCELERATE, *ONE, RUN]):
        done = start([*command, str(path)], cwd=ROOT)
        assert done.returncode != 0
        assert done.stderr.count("nothing that is allowed fits on CPU: the least is 1.4 MiB") == 1
    done = start([*LAUNCHER, "plan", str(path)], cwd=ROOT)
    assert done.returncode == 2
    assert done.stdout == ""
    assert not (tmp_path / "runs").exists()


def test_two_processes_train_by_one_plan_within_their_budgets(recipe, tmp_path):
    """Each stays on its own simulated card; without shards the states alone would not fit."""
    path = recipe(memory={"budget": "2MB"}, strategies={"uniform_dynamic_padding": True})
    done = start([*LAUNCHER, "run", "--processes", "2", str(path)], cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    (folder,) = (tmp_path / "runs").iterdir()
    plan = content(folder, "plan")
    assert plan["processes"] == 2
    assert plan["budget"]["forecast"]["peak_phase"]
    results = content(folder, "results")
    assert results["budget"]["kept"]


def test_auto_is_refused_where_each_process_would_see_another_size(recipe, tmp_path):
    done = start([*LAUNCHER, "run", "--processes", "2", str(recipe(memory={"budget": "auto"}))], cwd=ROOT)
    assert done.returncode == 2
    assert "all must train by one plan; write a size" in done.stderr
    assert not (tmp_path / "runs").exists()
