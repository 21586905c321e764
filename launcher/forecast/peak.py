"""From a tracked run to its forecast."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate

from launcher.devices import Device
from launcher.forecast.allocator import replay
from launcher.forecast.result import ACTIVATIONS, HOST, TEMPORARIES, Forecast, Peak
from launcher.forecast.tracker import Event, Tracker

MOST_OPERATORS = 8


def find_peaks(tracker: Tracker, device: Device) -> Forecast:
    """The fullest moment of each phase."""
    everywhere = tracker.real_events()
    hosted = [event for event in everywhere if tracker.storages[event.storage].row == HOST]
    events = on_device(tracker, everywhere, device)
    phases = {phase: _describe(tracker, events[: end + 1]) for phase, end in _fullest(events).items()}
    fullest = max(phases, key=lambda phase: phases[phase].size)
    host_bytes = max(accumulate((event.size for event in hosted), initial=0))
    if device.kind == "cpu":
        return Forecast(device.name, fullest, phases, None, None, host_bytes)
    card = replay(events)
    return Forecast(device.name, fullest, phases, card.allocated, card.reserved, host_bytes)


def on_device(tracker: Tracker, events: list[Event], device: Device) -> list[Event]:
    """Less those of the host's memory, which for a CPU is its own."""
    if device.kind == "cpu":
        return events
    return [event for event in events if tracker.storages[event.storage].row != HOST]


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
