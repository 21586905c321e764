"""What earlier runs have shown: of this device and torch alone, whatever else stands in the file."""

from __future__ import annotations

import json

import pytest

from launcher import calibration
from launcher.calibration import RUNS_LOOKED_AT, Calibration, calibration_file, calibration_of
from launcher.records import versions


def record(memory=1.0, time=1.0, **changes):
    """A run whose train phase took `memory` times its forecast, and an update `time` times."""
    return {
        "date": "2026-11-30T00:00:00+00:00",
        "device": "GTX 1650",
        "torch": versions()["torch"],
        "bytes": {"load": [100, 90], "train": [1000, round(1000 * memory)]},
        "seconds_per_update": [0.5, 0.5 * time],
    } | changes


def keep(*records):
    for one in records:
        calibration.keep(one)


def test_without_runs_forecasts_stand_as_they_are():
    assert calibration_of("GTX 1650") == Calibration(0, 1.0, 1.0)


def test_the_largest_of_memory_and_the_middle_of_time_count():
    keep(record(1.02, 2.0), record(1.1, 3.0), record(0.9, 40.0))
    assert calibration_of("GTX 1650") == Calibration(3, pytest.approx(1.1), pytest.approx(3.0))


def test_another_device_and_another_torch_do_not_count():
    keep(record(2.0, device="RTX 3060"), record(2.0, torch="1.0"), record(1.05))
    assert calibration_of("GTX 1650") == Calibration(1, pytest.approx(1.05), 1.0)
    assert calibration_of("RTX 3060").runs == 1


def test_only_the_latest_runs_count():
    keep(record(9.0), *[record()] * RUNS_LOOKED_AT)
    assert calibration_of("GTX 1650") == Calibration(RUNS_LOOKED_AT, 1.0, 1.0)


@pytest.mark.parametrize(
    "line",
    [
        "{",  # a run that was killed while it wrote
        "",
        "null",
        "[]",
        '"text"',
        "{}",
        json.dumps(record() | {"bytes": {}}),
        json.dumps(record() | {"bytes": {"train": [0, 5]}}),
        json.dumps(record() | {"bytes": {"train": [None, 5]}}),
        json.dumps(record() | {"bytes": [1, 2]}),
        json.dumps(record() | {"seconds_per_update": [0.0, 1.0]}),
        json.dumps(record() | {"seconds_per_update": None}),
    ],
)
def test_a_damaged_line_is_passed_over(line, cache):
    keep(record(1.1))
    with calibration_file().open("a", encoding="utf-8") as lines:
        lines.write(line + "\n")
    keep(record(1.2))
    assert calibration_of("GTX 1650") == Calibration(2, pytest.approx(1.2), 1.0)


def test_bytes_that_are_no_text_are_passed_over():
    keep(record(1.1))
    with calibration_file().open("ab") as lines:
        lines.write(b"\xff\xfe\n")
    assert calibration_of("GTX 1650").runs == 1


def test_a_folder_that_cannot_be_written_does_not_end_a_run(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FRUGAL_LAUNCHER_CACHE", str(tmp_path / "file"))
    keep(record())
    assert calibration_of("GTX 1650") == Calibration()
