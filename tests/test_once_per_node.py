"""Turns of processes that have not met: who goes first, what the others are told, and what happens when one dies."""

from __future__ import annotations

import json
import logging
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock

from launcher import cache as kept
from launcher import once_per_node as turns
from launcher.once_per_node import once_per_node

ROOT = Path(__file__).resolve().parent.parent
FIRST = """
import os, signal, sys
from launcher.once_per_node import once_per_node
with once_per_node(sys.argv[1]) as turn:
    print("in", flush=True)
    word = sys.stdin.readline().strip()
    if word == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "fail":
        raise SystemExit(2)
    turn.answer = word
print("out", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def first():
    """Starts a process that is in its turn until it is told how to end it."""
    started = []

    def start(key):
        process = subprocess.Popen(
            [sys.executable, "-c", FIRST, key],
            cwd=ROOT,
            env=os.environ | {"LOCAL_RANK": "0"},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout.readline() == "in\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def second(monkeypatch):
    """This process is another of the node than the first, started before any word was left, and does not wait long."""
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr("psutil.Process.create_time", lambda self: STARTED)
    monkeypatch.setattr(turns, "HEAD_START", 0.3)


STARTED = time.time()


def end(process, word):
    process.stdin.write(f"{word}\n")
    process.stdin.flush()


def test_one_process_goes_in_at_once_and_alone():
    with once_per_node("alone") as turn:
        assert turn.is_alone
        assert turn.answer is None


@pytest.mark.usefixtures("second")
def test_the_others_wait_and_are_told(first):
    process = first("told")
    end(process, "key of what was kept")
    with once_per_node("told") as turn:
        assert turn.answer == "key of what was kept"
        assert not turn.is_alone


@pytest.mark.usefixtures("second")
def test_who_works_is_waited_for_beyond_the_head_start(first, monkeypatch):
    """The head start is for one who has not come; here it has, and says what it found only when the wait is noticed."""
    process = first("long")
    monkeypatch.setattr(FileLock, "acquire", notice(FileLock.acquire, lambda: end(process, "late")))
    with once_per_node("long") as turn:
        assert turn.answer == "late"


def notice(acquire, tell):
    def wrapped(self, timeout=None, **options):
        try:
            return acquire(self, timeout=0)
        except turns.Timeout:
            time.sleep(2 * turns.HEAD_START)
            tell()
            return acquire(self, timeout=timeout)

    return wrapped


@pytest.mark.usefixtures("second")
@pytest.mark.parametrize("ending", ["die", "fail"])
def test_a_first_that_ends_without_an_answer_leaves_nobody_waiting(first, monkeypatch, ending):
    monkeypatch.setattr(turns, "HEAD_START", 600.0)
    process = first(f"crash-{ending}")
    end(process, ending)
    start = time.monotonic()
    with once_per_node(f"crash-{ending}") as turn:
        assert turn.answer is None
        assert not turn.is_alone
    assert time.monotonic() - start < 60


@pytest.mark.usefixtures("second")
def test_a_first_that_never_comes_is_waited_for_no_longer_than_its_head_start():
    with once_per_node("absent") as turn:
        assert turn.answer is None


@pytest.mark.usefixtures("second")
def test_the_word_of_an_earlier_launch_does_not_count():
    name = f"earlier.{platform.node()}"
    kept.write("turns", name, {"time": STARTED - 1.0, "answer": "stale"})
    with once_per_node("earlier") as turn:
        assert turn.answer is None
    kept.write("turns", name, {"time": STARTED + 1.0, "answer": "fresh"})
    with once_per_node("earlier") as turn:
        assert turn.answer == "fresh"


def test_two_runs_at_once_take_turns(first, caplog, monkeypatch):
    process = first("runs")
    monkeypatch.setattr(FileLock, "acquire", notice(FileLock.acquire, lambda: end(process, "done")))
    monkeypatch.setattr(turns, "HEAD_START", 0.0)
    with caplog.at_level(logging.INFO, "launcher"), once_per_node("runs") as turn:
        assert turn.is_alone
    assert kept.read("turns", f"runs.{platform.node()}")["answer"] is None  # this turn's own: nothing was said in it


def test_another_run_that_holds_it_for_too_long_is_not_waited_for(first, caplog, monkeypatch):
    first("stuck")
    monkeypatch.setattr(turns, "MOST_WAITED", 0.2)
    with caplog.at_level(logging.INFO, "launcher"), once_per_node("stuck") as turn:
        assert not turn.is_alone
    assert [record.message for record in caplog.records] == [
        "another run is at the same data: waiting for it",
        "the other run has not come to an end of it: not waiting any longer",
    ]


@pytest.mark.parametrize("local_rank", ["0", "1"])
def test_a_cache_that_cannot_be_written_is_said_and_nobody_waits(local_rank, monkeypatch, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FRUGAL_LAUNCHER_CACHE", str(tmp_path / "file"))
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    start = time.monotonic()
    with caplog.at_level(logging.WARNING, "launcher"), once_per_node("unwritable") as turn:
        assert not turn.is_alone
        assert turn.answer is None
    assert time.monotonic() - start < turns.HEAD_START / 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "cannot be locked" in caplog.text


def test_an_error_inside_is_passed_on_and_leaves_the_turn_to_the_next():
    with pytest.raises(KeyError), once_per_node("error"):
        raise KeyError
    with once_per_node("error") as turn:
        assert turn.is_alone
    assert json.loads((kept.folder_of("turns") / f"error.{platform.node()}.json").read_text())["answer"] is None
