"""Every way to start the launcher works, and a mistake is told once, with exit code 2."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.launches.commands import ACCELERATE, ONE, ROOT, RUN, clean_environment, start

pytestmark = pytest.mark.launch
CONSOLE = [str(Path(sys.executable).with_name("launcher"))]
FORMS = {
    "accelerate_from_the_checkout": (ROOT, [*ACCELERATE, *ONE, "launcher/run.py"]),
    "accelerate_from_another_folder": (None, [*ACCELERATE, *ONE, RUN]),
    "accelerate_module": (None, [*ACCELERATE, *ONE, "-m", "launcher.run"]),
    "python_module": (None, [sys.executable, "-m", "launcher", "run"]),
    "console": (None, [*CONSOLE, "run"]),
    "console_two_processes": (None, [*CONSOLE, "run", "--processes", "2"]),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_start_form_trains_and_leaves_a_model(form, recipe, tmp_path):
    folder, command = FORMS[form]
    path = recipe(data={"validation": {"share": 0.2}})
    done = start([*command, str(path), "training.updates=1"], cwd=folder or tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    run = tmp_path / "runs" / "tiny"
    assert {entry.name for entry in run.iterdir()} == {
        "metrics.jsonl",
        "model",
        "plan.json",
        "recipe.json",
        "results.json",
        "versions.json",
    }
    assert (run / "model" / "model.safetensors").exists()
    assert f"model of update 1: {run / 'model'}" in done.stdout


@pytest.mark.parametrize("form", ["accelerate_from_another_folder", "console", "console_two_processes"])
def test_a_mistake_is_told_once(form, recipe, tmp_path):
    _, command = FORMS[form]
    done = start([*command, str(recipe()), "training.epoch=3"], cwd=tmp_path)
    message = "recipe.yaml: 1 problem\n  command line: training.epoch: unknown key; did you mean epochs?\n"
    assert done.stderr.count(message) == 1
    if form.startswith("console"):
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


def test_a_mistake_found_after_the_start_has_the_same_exit_code(recipe, tmp_path):
    """Bad rows are found by the processes, not by the check before them."""
    path = recipe(task={"problem": "regression"})
    done = start([*CONSOLE, "run", "--processes", "2", str(path)], cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("is not a number; task.problem: regression needs one") > 0
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("processes", [1, 2])
def test_ctrl_c_ends_without_a_traceback(processes, recipe, tmp_path):
    path = recipe(training={"updates": 100_000})
    process = subprocess.Popen(
        [*CONSOLE, "run", str(path), "--processes", str(processes)],
        cwd=tmp_path,
        env=clean_environment(tmp_path),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    metrics = tmp_path / "runs" / "tiny" / "metrics.jsonl"
    while not metrics.exists() and process.poll() is None:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all of them
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.count("stopped by Ctrl-C; what the run folder holds stays\n") == 1
    assert "Traceback" not in errors
