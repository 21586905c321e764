"""A forecast: what a run will hold at its fullest moment, in all, phase by phase, row by row."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

WEIGHTS, GRADIENTS, OPTIMIZER = "weights", "gradients", "optimizer"
ACTIVATIONS, TEMPORARIES, HOST = "activations", "temporaries", "host"
ROWS = (WEIGHTS, GRADIENTS, OPTIMIZER, ACTIVATIONS, TEMPORARIES, HOST)


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
    blocks of CUDA's caching allocator, and the segments that it takes for them. None on a CPU. `host_bytes` is the most
    that a strategy keeps in the host's memory: beside a card on top of all else here, on a CPU a part of it, in the
    row "host".
    """

    device: str
    peak_phase: str
    phases: dict[str, Peak]
    allocated: int | None
    reserved: int | None
    host_bytes: int

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
