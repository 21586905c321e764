"""What a tracked run held at its fullest moment: in all, phase by phase, row by row."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from launcher.devices import Device
from launcher.forecast.allocator import replay
from launcher.forecast.tracker import ACTIVATIONS, TEMPORARIES, Event, Tracker

MOST_OPERATORS = 8


@dataclass(frozen=True)
class Peak:
    """Bytes. `rows` add up to `size`; `operators` are those that made most of the activations and temporaries."""

    size: int
    rows: dict[str, int]
    operators: dict[str, int]


@dataclass(frozen=True)
class Forecast:
    """Of one process on one device, tensors only: no context of a driver, no libraries, no interpreter.

    `allocated` and `reserved` are what torch.cuda.max_memory_allocated and max_memory_reserved count, in bytes: whole
    blocks of CUDA's caching allocator, and the segments that it takes for them. None on a CPU.
    """

    device: str
    peak_phase: str
    phases: dict[str, Peak]
    allocated: int | None
    reserved: int | None

    @property
    def peak(self) -> Peak:
        """The fullest moment of all phases."""
        return self.phases[self.peak_phase]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Forecast:
        phases = {phase: Peak(**peak) for phase, peak in content["phases"].items()}
        return cls(**content | {"phases": phases})


def find_peaks(tracker: Tracker, device: Device) -> Forecast:
    """The fullest moment of each phase."""
    events = tracker.real_events()
    phases = {phase: _describe(tracker, events[: end + 1]) for phase, end in _fullest(events).items()}
    fullest = max(phases, key=lambda phase: phases[phase].size)
    if device.kind == "cpu":
        return Forecast(device.name, fullest, phases, None, None)
    card = replay(events)
    return Forecast(device.name, fullest, phases, card.allocated, card.reserved)


def _fullest(events: list[Event]) -> dict[str, int]:
    """For each phase the number of the event that ends at its largest sum."""
    held, most, moments = 0, dict[str, int](), dict[str, int]()
    for number, event in enumerate(events):
        held += event.size
        if held > most.get(event.phase, -1):
            most[event.phase], moments[event.phase] = held, number
    return moments


def _describe(tracker: Tracker, events: list[Event]) -> Peak:
    """What lives after these events."""
    rows: Counter[str] = Counter()
    operators: Counter[str] = Counter()
    for event in events:
        storage = tracker.storages[event.storage]
        rows[storage.row] += event.size
        if storage.row in (ACTIVATIONS, TEMPORARIES):
            operators[storage.operator] += event.size
    kept = {row: size for row, size in sorted(rows.items(), key=lambda item: -item[1]) if size}
    largest = {name: size for name, size in operators.most_common(MOST_OPERATORS) if size}
    return Peak(sum(rows.values()), kept, largest)
