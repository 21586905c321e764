"""Optimizer offload: AdamW's states in the host's memory, the update on the card; the same AdamW."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from launcher.strategies.base import Cost, Strategy

if TYPE_CHECKING:
    from launcher.job import Job
    from launcher.settings import Settings


class OptimizerOffload(Strategy):
    """Takes 8 bytes a trained parameter off the card; each update sends them there and back."""

    key: ClassVar[str] = "optimizer_offload"
    cost: ClassVar[Cost] = "slower"
    summary: ClassVar[str] = "Keep AdamW's states in the host's memory"
    example: ClassVar[dict[str, object]] = {}
    conflicts: ClassVar[dict[str, str]] = {
        "adafactor": "both choose the optimizer",
        "eight_bit_optimizer": "both choose the optimizer",
        "fsdp": "fsdp has its own: strategies.fsdp.offload: true",
        "zero": "zero has its own: strategies.zero.offload: optimizer",
    }

    def notes(self, job: Job) -> list[str]:
        if job.device.kind == "cpu":
            return ["no effect on memory: without a card there is nothing to take states off"]
        return []

    def configure(self, settings: Settings) -> None:
        settings.optimizer = "launcher.offloaded_adamw:OffloadedAdamW"
        settings.optimizer_options = {}

    @classmethod
    def candidates(cls, job: Job) -> list[Self]:
        # Over several processes each would keep all states in one host's memory; zero spreads them.
        return [cls()] if job.device.kind == "cuda" and job.processes == 1 else []
