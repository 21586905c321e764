"""What earlier runs on this machine have shown: memory and time beside their forecasts."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher import cache
from launcher.records import append_line, versions

RUNS_LOOKED_AT = 20  # the latest of a device


@dataclass(frozen=True)
class Calibration:
    """What runs on this device have shown. `memory`: the largest of fact / forecast; `time`: their middle."""

    runs: int = 0
    memory: float = 1.0
    time: float = 1.0


def calibration_file() -> Path:
    return cache.cache_folder() / "calibration.jsonl"


def keep(record: dict[str, Any]) -> None:
    """Adds a run's figures; a folder that cannot be written is no reason to fail."""
    try:
        calibration_file().parent.mkdir(parents=True, exist_ok=True)
        append_line(calibration_file(), record)
    except OSError:
        return


def calibration_of(device: str) -> Calibration:
    """Of the latest runs on a device of this name."""
    try:
        lines = calibration_file().read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return Calibration()
    kind = device, versions()["torch"]
    found = [seen for line in lines if (seen := _read(line, *kind)) is not None][-RUNS_LOOKED_AT:]
    if not found:
        return Calibration()
    return Calibration(len(found), max(memory for memory, _ in found), statistics.median(time for _, time in found))


def _read(line: str, device: str, torch: str) -> tuple[float, float] | None:
    """fact / forecast of memory at its fullest, and of time; None for another device or torch, or a damaged line."""
    try:
        record = json.loads(line)
        if (record["device"], record["torch"]) != (device, torch):
            return None
        forecast, fact = record["seconds_per_update"]
        # Of the fullest phase, which the budget is about: a fixed extra in a small one says nothing of it.
        expected, held = max(record["bytes"].values())
        return held / expected, fact / forecast
    except (ValueError, TypeError, KeyError, AttributeError, ZeroDivisionError):
        return None
