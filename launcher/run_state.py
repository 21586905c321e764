"""A run under way: what it takes of time and memory, and what it has recorded so far."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launcher.disk import writing
from launcher.meter import MemoryMeter
from launcher.planner.proposal import Proposal
from launcher.records import append_line
from launcher.screen import Screen
from launcher.tasks.base import Evaluation


@dataclass
class Phases:
    """Seconds and peak memory of each phase."""

    meter: MemoryMeter
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Time and peak memory of what runs inside; an inner phase does not count for the outer one."""
        outer = self.meter.phase
        self.meter.enter(name)
        start = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + elapsed
            if outer:
                self.seconds[outer] = self.seconds.get(outer, 0.0) - elapsed
            self.meter.enter(outer)


@dataclass
class Run:
    """On every process; only the main one writes. `evaluation` belongs to the weights that are kept.

    `proposal` is the plan for its budget, where there is one.
    """

    folder: Path
    screen: Screen
    phase: Phases
    proposal: Proposal | None = None
    totals: dict[str, float] = field(default_factory=dict)
    evaluation: Evaluation | None = None
    kept_update: int = 0
    # Without the first update, in which libraries and caches warm up.
    warm_updates: int = 0
    warm_seconds: float = 0.0

    def add(self, **amounts: float) -> None:
        """Adds to the totals that the summary divides."""
        for name, amount in amounts.items():
            self.totals[name] = self.totals.get(name, 0.0) + amount

    def record(self, **facts: Any) -> None:
        """One line of metrics.jsonl; SaveError on the main process, which ends the others with it."""
        if self.screen.main:
            with writing(self.folder, 0):
                append_line(self.folder / "metrics.jsonl", facts)
