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
        lines = calibration_file().read_text(encoding="utf-8").splitlines()
    except OSError:
        return Calibration()
    records = [record for line in lines if (record := json.loads(line))["device"] == device]
    records = [record for record in records if record["torch"] == versions()["torch"]][-RUNS_LOOKED_AT:]
    if not records:
        return Calibration()
    memory = [fact / forecast for record in records for forecast, fact in record["bytes"].values()]
    time = [fact / forecast for forecast, fact in (record["seconds_per_update"] for record in records)]
    return Calibration(len(records), max(memory), statistics.median(time))
