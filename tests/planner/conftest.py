"""Where a search stands, for the tiny model and a device of fixed rates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.devices import CORE_BANDWIDTH, CORE_FLOPS, CPU, Device, find_device
from launcher.planner.ground import Ground

# Which plan is the fastest must not hang on the cores of the machine that runs the tests.
TWO_CORES = replace(
    CPU, bandwidth=2 * CORE_BANDWIDTH, link=2 * CORE_BANDWIDTH, float32=2 * CORE_FLOPS, half=2 * CORE_FLOPS
)


@pytest.fixture
def ground(recipe: Callable[..., Path]) -> Iterator[Callable[..., Ground]]:
    """Makes one of a recipe's sections: its data is read, nothing is measured yet."""
    from accelerate.state import AcceleratorState

    from launcher.check import check
    from launcher.planner.ground import stand_on

    def make(device: str = "cpu", **sections: Any) -> Ground:
        target: Device = TWO_CORES if device == "cpu" else find_device(device)
        return stand_on(check(recipe(**sections), target=target), target)

    yield make
    AcceleratorState._reset_state(reset_partial_state=True)
