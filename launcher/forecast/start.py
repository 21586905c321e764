"""A forecast in a process of its own: fake tensors and patched operators must not meet the run itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from launcher.devices import Device
from launcher.errors import ForecastError, LauncherError
from launcher.forecast.peak import Forecast


def forecast(recipe: Path, overrides: Sequence[str], device: Device) -> Forecast:
    """Of a recipe that has been checked. ForecastError where it cannot be followed."""
    request = {"recipe": str(recipe), "overrides": list(overrides), "device": asdict(device)}
    # Nothing is computed, so a card, other processes and threads are of no use to it.
    alone = {"CUDA_VISIBLE_DEVICES": "", "WORLD_SIZE": "1", "RANK": "0", "OMP_NUM_THREADS": "1"}
    environment = {k: v for k, v in os.environ.items() if k not in ("LOCAL_RANK", "MASTER_ADDR")} | alone
    command = [sys.executable, "-m", "launcher.forecast", json.dumps(request)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    answer = done.stdout.strip().splitlines()[-1:] or [""]
    if done.returncode != 0 or not answer[0].startswith("{"):
        last = done.stderr.strip().splitlines()[-1:] or ["no word of the reason"]
        raise ForecastError(device.name, [f"this run cannot be followed without weights: {last[0]}"])
    content = json.loads(answer[0])
    if "problems" in content:
        kinds = {kind.__name__: kind for kind in LauncherError.__subclasses__()}
        raise kinds[content["kind"]](content["where"], content["problems"])
    return Forecast.from_json(content)
