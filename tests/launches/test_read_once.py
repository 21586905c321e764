"""Two real processes read, split and tokenise once, before they meet, and a second run not at all."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launches.commands import ACCELERATE, TWO, clean_environment, start

pytestmark = pytest.mark.launch
JOB = str(Path(__file__).with_name("read_once_job.py"))
HELD = {"data": {"validation": {"share": 0.25}}}


@pytest.fixture
def processes(tmp_path):
    """Starts `count` processes that read and do not train; returns what each holds, and how each ended."""

    def run(recipe, *options, count=2, kept=tmp_path / "kept"):
        answers = tmp_path / "answers"
        shutil.rmtree(answers, ignore_errors=True)
        answers.mkdir()
        world = clean_environment(tmp_path) | {"FRUGAL_LAUNCHER_CACHE": str(kept)}
        ranks = [{name: str(rank) for name in ("RANK", "LOCAL_RANK")} for rank in range(count)]
        started = [
            subprocess.Popen(
                [sys.executable, JOB, str(answers), str(recipe), *options],
                env=world | ({"WORLD_SIZE": str(count)} | one if count > 1 else {}),
            )
            for one in ranks
        ]
        codes = [process.wait(timeout=300) for process in started]
        return [json.loads(file.read_text()) for file in sorted(answers.iterdir())], codes

    return run


def without_counts(answer):
    return {name: value for name, value in answer.items() if name not in ("texts", "met")}


def test_a_launch_reads_once_before_its_processes_meet_and_again_not_at_all(recipe, tmp_path, processes):
    path = recipe(**HELD)
    for run, texts in enumerate([[56, 0], [0, 0]]):
        folder = tmp_path / str(run)
        folder.mkdir()
        done = start(
            [*ACCELERATE, *TWO, JOB, str(folder), str(path), "--train"],
            cwd=tmp_path,
            ACCELERATE_USE_CPU="true",
            FRUGAL_LAUNCHER_CACHE=str(tmp_path / "launched"),
        )
        assert done.returncode == 0, done.stderr[-3000:]
        first, second = (json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1))
        assert [first["texts"], second["texts"]] == texts
        assert not first["met"]
        assert without_counts(first) == without_counts(second)
        assert done.stdout.count("data: 42 examples to train on, 14 to validate") == 1
    (alone,), _ = processes(path, count=1)
    assert without_counts(alone) == without_counts(first)


def test_a_process_killed_while_it_writes_leaves_nothing_that_is_used(recipe, tmp_path, processes):
    path = recipe(**HELD)
    answers, codes = processes(path, "--die-in-writing", count=2)
    assert codes == [-signal.SIGKILL, 0]
    assert [answer["texts"] for answer in answers] == [56]  # the other does it itself, and does not hang
    examples = tmp_path / "kept" / "examples"
    assert [entry.suffix for entry in examples.iterdir()] == [".tmp"]
    again, codes = processes(path)
    assert codes == [0, 0]
    assert [answer["texts"] for answer in again] == [56, 0]
    assert without_counts(again[0]) == without_counts(again[1]) == without_counts(answers[0])
    assert [entry.suffix for entry in examples.iterdir()] == [""]


def test_in_a_cache_that_cannot_be_written_each_process_reads_the_same(recipe, tmp_path, processes):
    (tmp_path / "file").write_text("")
    answers, codes = processes(recipe(**HELD), kept=tmp_path / "file")
    assert codes == [0, 0]
    assert [answer["texts"] for answer in answers] == [56, 56]
    assert without_counts(answers[0]) == without_counts(answers[1])


def test_a_model_of_the_hub_is_known_by_its_commit(recipe, tmp_path, tiny_model, processes):
    """In a cache as downloads leave it; without a network."""
    place = tmp_path / "hf" / "hub" / "models--somebody--tiny"
    (place / "refs").mkdir(parents=True)
    path = recipe(model={"source": "somebody/tiny"}, training={"updates": 1})
    counts = []
    for commit in ("1" * 40, "1" * 40, "2" * 40):
        (place / "refs" / "main").write_text(commit)
        shutil.copytree(tiny_model, place / "snapshots" / commit, dirs_exist_ok=True)
        (answer,), codes = processes(path, *([] if counts else ["--train"]), count=1)
        assert codes == [0]
        counts.append(answer["texts"])
    assert counts == [56, 0, 56]
