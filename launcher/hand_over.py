"""How a process that ran out of memory tells its parent what to start again with."""

from __future__ import annotations

import json
import os
from pathlib import Path

from launcher.errors import MemoryExceededError

_PLACE = "FRUGAL_LAUNCHER_HAND_OVER"


def expect(place: Path) -> None:
    """Processes that are started from now on write there."""
    os.environ[_PLACE] = str(place)


def hand_over(error: MemoryExceededError) -> None:
    """Where nobody expects it, nothing is written: a bare `accelerate launch` shows the error and no more."""
    place = os.environ.get(_PLACE)
    if place is not None:
        temporary = Path(f"{place}.{os.getpid()}")
        temporary.write_text(
            json.dumps({"where": error.where, "problems": error.problems, "overrides": error.overrides})
        )
        temporary.replace(place)


def take_over(place: Path) -> MemoryExceededError | None:
    """What a process has written there."""
    if not place.exists():
        return None
    return MemoryExceededError(**json.loads(place.read_text()))
