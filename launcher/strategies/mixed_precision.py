"""Mixed precision: forward and backward in half precision, float32 master weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from launcher.strategies.base import Cost, Problem, Strategy

if TYPE_CHECKING:
    from launcher.job import Job
    from launcher.machine import Machine
    from launcher.settings import Settings


class MixedPrecision(Strategy):
    """fp16 comes with a gradient scaler; bf16 needs none."""

    key: ClassVar[str] = "mixed_precision"
    cost: ClassVar[Cost] = "changes_training"
    summary: ClassVar[str] = "Compute in half precision, keep float32 weights"
    example: ClassVar[dict[str, object]] = {"precision": "bf16"}

    precision: Literal["bf16", "fp16"] = Field(description="bf16 (cards from 2020 on) or fp16 (older cards)")

    def problems(self, job: Job) -> list[Problem]:
        able = job.machine.has_bf16 if self.precision == "bf16" else job.machine.has_fp16
        return [] if able else [Problem("precision", _refusal(self.precision, job.machine))]

    def notes(self, job: Job) -> list[str]:
        if job.machine.device == "cpu":
            return ["on a CPU without bf16 units this is slower than float32, and saves memory all the same"]
        return []

    def configure(self, settings: Settings) -> None:
        settings.precision = self.precision


def _refusal(precision: str, machine: Machine) -> str:
    if machine.device == "cpu":
        return "a CPU trains in bf16 or float32, not in fp16"
    if precision == "bf16":
        assert machine.capability is not None
        major, minor = machine.capability
        return f"{machine.device_name} has capability {major}.{minor} and only emulates bf16 (8.0 has it); use fp16"
    return f"{machine.device_name} returns NaN in fp16; leave mixed_precision out"
