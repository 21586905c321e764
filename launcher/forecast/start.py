"""A forecast in a process of its own: fake tensors and patched operators must not meet the run itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from launcher.devices import Device
from launcher.errors import ForecastError, LauncherError
from launcher.forecast.result import Forecast


def forecast(recipe: Path, overrides: Sequence[str], device: Device, processes: int = 1) -> Forecast:
    """Of one of so many processes, by a recipe that has been checked. ForecastError where it cannot be followed."""
    request = {"recipe": str(recipe), "overrides": list(overrides), "device": asdict(device), "processes": processes}
    return Forecast.from_json(ask("forecast", request, on_cpu=device.kind == "cpu"))


def ask(what: str, request: dict[str, Any], *, on_cpu: bool) -> Any:
    """The answer of launcher.forecast's own process; its LauncherErrors are raised here."""
    # Nothing is computed, so a card, other processes and threads are of no use to it; but on a CPU what a kernel takes
    # depends on its threads, which are then those of the run.
    alone = {"CUDA_VISIBLE_DEVICES": "", "WORLD_SIZE": "1", "RANK": "0"}
    if not on_cpu:
        alone["OMP_NUM_THREADS"] = "1"
    environment = {k: v for k, v in os.environ.items() if k not in ("LOCAL_RANK", "MASTER_ADDR")} | alone
    command = [sys.executable, "-m", "launcher.forecast", json.dumps({"what": what} | request)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    answer = done.stdout.strip().splitlines()[-1:] or [""]
    if done.returncode != 0 or not answer[0].startswith("{"):
        last = done.stderr.strip().splitlines()[-1:] or ["no word of the reason"]
        raise ForecastError(what, [f"this run cannot be followed without weights: {last[0]}"])
    content = json.loads(answer[0])
    if "problems" in content:
        raise error_from(content)
    return content["answer"]


def error_from(content: dict[str, Any]) -> LauncherError:
    """What LauncherError.as_json has made of an error."""
    kinds = {kind.__name__: kind for kind in LauncherError.__subclasses__()}
    return kinds[content["kind"]](content["where"], content["problems"])
