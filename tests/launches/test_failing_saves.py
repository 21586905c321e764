"""Disks that are full, and one that lies: all processes of a run stop together, in words, as early as can be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launches.commands import ACCELERATE, ROOT, TWO, start

pytestmark = pytest.mark.launch
JOB = str(Path(__file__).with_name("saves_job.py"))


@pytest.fixture
def small_disk(tmp_path):
    """256 KiB, of which a run's own files take some 60; the tiny model's weights are 301 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs leave to mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def kinds(run):
    return [json.loads(line)["kind"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def codes(folder):
    return [(folder / f"code-{rank}").read_text() for rank in (0, 1)]


def test_a_full_disk_stops_two_processes_after_the_first_update(recipe, tmp_path, small_disk):
    path = recipe(output={"folder": str(small_disk)}, training={"updates": 50}, strategies={"zero": {"stage": 3}})
    done = start([*ACCELERATE, *TWO, JOB, "all", str(path)], cwd=tmp_path, ACCELERATE_USE_CPU="true")
    assert done.returncode != 0
    assert codes(tmp_path) == ["2", "2"]
    where = small_disk / "tiny" / "trial-save.tmp"
    cause = f"{where}: 1 problem\n  cannot be written: No space left on device (301.0 KiB needed, "
    assert done.stderr.count(cause) == 1
    assert done.stderr.count("KiB free); free space there, or write output.folder to a larger disk\n") == 1
    assert kinds(small_disk / "tiny") == ["update"]
    assert not where.exists()


def test_a_disk_that_is_full_before_anything_is_trained_stops_both(recipe, tmp_path, small_disk):
    (small_disk / "other").write_bytes(bytes(252 * 1024))
    done = start(
        [*ACCELERATE, *TWO, JOB, "all", str(recipe(output={"folder": str(small_disk)}))],
        cwd=tmp_path,
        ACCELERATE_USE_CPU="true",
    )
    assert codes(tmp_path) == ["2", "2"]
    assert done.stderr.count("cannot be written: No space left on device (") == 1


def test_a_file_that_is_not_what_was_written_stops_both(recipe, tmp_path):
    path = recipe(strategies={"fsdp": {"reshard": True}})
    done = start([*ACCELERATE, *TWO, JOB, "trial", str(path)], cwd=tmp_path, ACCELERATE_USE_CPU="true")
    assert codes(tmp_path) == ["2", "2"]
    assert done.stderr.count(" reads back with other values than the model's\n") == 1
    run = tmp_path / "runs" / "tiny"
    assert kinds(run) == ["update", "save_trial", "update"]
    assert not (run / "model").exists()
    assert not (run / "model.tmp").exists()


def test_a_limit_on_file_sizes_is_named_by_its_command(recipe, tmp_path):
    launcher = [sys.executable, "-m", "launcher", "run", str(recipe())]
    done = start(["bash", "-c", 'ulimit -f 200; exec "$@"', "bash", *launcher], cwd=ROOT)
    assert done.returncode == 2
    assert "cannot be written: File too large (301.0 KiB needed, " in done.stderr
    assert "raise the limit on file sizes (ulimit -f)" in done.stderr
    assert "Traceback" not in done.stderr
