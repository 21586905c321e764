"""What one combination of strategies holds and does: a few micro-batches of chosen sizes, and its update."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
from datasets import Dataset

from launcher.batches import MicroBatch
from launcher.cutter import Limits
from launcher.data import Examples, Lengths
from launcher.devices import Device
from launcher.forecast.fake_run import FakeRun, fake_run
from launcher.forecast.peak import on_device
from launcher.forecast.result import HOST
from launcher.forecast.tracker import Event, Tracker
from launcher.forecast.work import Work
from launcher.load import Loaded
from launcher.padding import Padding
from launcher.plan import Plan
from launcher.shards import elements
from launcher.train import backward, step

Size = tuple[int, int]  # examples, and the padded length of each


@dataclass(frozen=True)
class Point:
    """One micro-batch beside gradients and optimizer states: peaks in bytes, everything on the device included."""

    examples: int
    length: int
    peaks: dict[str, int]
    work: Work


@dataclass(frozen=True)
class Measurement:
    """Bytes. `held` is what stays between the micro-batches of an update, by row; `trained` counts parameters."""

    held: dict[str, int]
    update: int
    host: int
    trained: int
    update_work: Work
    points: tuple[Point, ...]

    @property
    def states(self) -> int:
        """All that is held, whatever the micro-batch."""
        return sum(self.held.values())

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "update_work": self.update_work.as_json(),
            "points": [asdict(point) | {"work": point.work.as_json()} for point in self.points],
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Measurement:
        points = tuple(Point(**point | {"work": Work.from_json(point["work"])}) for point in content["points"])
        return cls(**content | {"update_work": Work.from_json(content["update_work"]), "points": points})


def measure(plan: Plan, loaded: Loaded, device: Device, sizes: Sequence[Size]) -> Measurement:
    """Optimizer states and gradients in place, each size once, and a step; without sizes the states and the step."""
    with fake_run(plan, loaded, device, with_work=True) as run:
        session = run.session
        _use_sizes(run, sizes)
        run.recorder.is_paused = True
        run.fill()
        run.recorder.is_paused = False
        marks, works = [len(run.tracker.events)], []
        with session.form.accumulating():
            for start, (examples, _) in zip(np.cumsum([0, *(size[0] for size in sizes)]), sizes, strict=False):
                backward(session, MicroBatch(np.arange(start, start + examples)), examples)
                marks.append(len(run.tracker.events))
                works.append(run.recorder.take())
        sent = _sent_once(run)
        step(session)
        update_work = run.recorder.take() + Work(sent=sent)
        trained = sum(elements(parameter) for parameter in session.model.parameters() if parameter.requires_grad)
    everywhere = run.tracker.real_events()
    # Marks count all events: those of the host's memory are left in their places, as nothing.
    kept = set(map(id, on_device(run.tracker, everywhere, device)))
    events = [event if id(event) in kept else replace(event, size=0) for event in everywhere]
    hosted = (event.size for event in everywhere if run.tracker.storages[event.storage].row == HOST)
    points = [
        Point(*size, _peaks(events, start, end), work)
        for size, start, end, work in zip(sizes, marks, marks[1:], works, strict=False)
    ]
    update = _peaks(events, marks[-1], len(events))["update"]
    held = _held(run.tracker, events[: marks[0]])
    host = max(accumulate(hosted, initial=0))
    return Measurement(held, update, host, trained, update_work, tuple(points))


def _sent_once(run: FakeRun) -> int:
    """Bytes that an update's last micro-batch sends beyond what each does."""
    if run.session.accelerator.num_processes == 1:
        return 0
    first = MicroBatch(np.arange(1))
    with run.session.form.accumulating():
        backward(run.session, first, 1)
    each = run.recorder.take().sent
    backward(run.session, first, 1)
    return max(0, run.recorder.take().sent - each)


def _use_sizes(run: FakeRun, sizes: Sequence[Size]) -> None:
    """Texts of the sizes asked for take the place of the data's."""
    if not sizes:
        return
    session = run.session
    lengths = np.repeat([length for _, length in sizes], [examples for examples, _ in sizes])
    columns = {name: [[1] * length for length in lengths] for name in session.examples.tokens.column_names}
    labels = [session.examples.labels[0]] * len(lengths)
    session.examples = Examples(Dataset.from_dict(columns), labels, Lengths(lengths, lengths))
    session.cutter = replace(session.cutter, lengths=lengths, padding=Padding(), limits=Limits())


def _peaks(events: list[Event], start: int, end: int) -> dict[str, int]:
    """The largest sum that each phase reaches in this stretch."""
    held = sum(event.size for event in events[:start])
    most: dict[str, int] = {}
    for event in events[start:end]:
        held += event.size
        most[event.phase] = max(most.get(event.phase, 0), held)
    return most


def _held(tracker: Tracker, events: list[Event]) -> dict[str, int]:
    rows: Counter[str] = Counter()
    for event in events:
        rows[tracker.storages[event.storage].row] += event.size
    return {row: size for row, size in rows.items() if size}
