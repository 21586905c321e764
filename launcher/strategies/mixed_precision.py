"""Mixed precision: forward and backward in half precision, float32 master weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field

from launcher.strategies.base import Cost, Problem, Strategy

if TYPE_CHECKING:
    from launcher.devices import Device
    from launcher.job import Job
    from launcher.settings import Settings

# DeepSpeed 0.19: loss_scale stays 1 in unscale_and_clip_grads, torch's scaler divides after it.
FP16_UNDER_ZERO = (
    "under ZeRO fp16's gradient would be clipped before its scale is taken back; use bf16 or strategies.fsdp"
)


class MixedPrecision(Strategy):
    """fp16 comes with a gradient scaler; bf16 needs none."""

    key: ClassVar[str] = "mixed_precision"
    cost: ClassVar[Cost] = "changes_training"
    summary: ClassVar[str] = "Compute in half precision, keep float32 weights"
    example: ClassVar[dict[str, object]] = {"precision": "bf16"}

    precision: Literal["bf16", "fp16"] = Field(description="bf16 (cards from 2020 on) or fp16 (older cards)")

    def problems(self, job: Job) -> list[Problem]:
        able = job.device.has_bf16 if self.precision == "bf16" else job.device.has_fp16
        found = [] if able else [Problem("precision", _refusal(self.precision, job.device))]
        if self.precision == "fp16" and job.recipe.strategies.get("zero") is not None:
            found.append(Problem("precision", FP16_UNDER_ZERO))
        return found

    def notes(self, job: Job) -> list[str]:
        if job.device.kind == "cpu":
            return ["on a CPU without bf16 units this is slower than float32, and saves memory all the same"]
        return []

    @classmethod
    def candidates(cls, job: Job) -> list[Self]:
        return [cls(precision=name) for name in ("bf16", "fp16")]

    def configure(self, settings: Settings) -> None:
        settings.precision = self.precision


def _refusal(precision: str, device: Device) -> str:
    if device.capability is None:
        return "a CPU trains in bf16 or float32, not in fp16"
    if precision == "bf16":
        major, minor = device.capability
        return f"{device.name} has capability {major}.{minor} and only emulates bf16 (8.0 has it); use fp16"
    return f"{device.name} returns NaN in fp16; leave mixed_precision out"
