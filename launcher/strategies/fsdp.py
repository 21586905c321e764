"""FSDP: weights, gradients and optimizer states in shards over the processes, by torch's FSDP2."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from launcher.strategies.base import Cost, Strategy

if TYPE_CHECKING:
    from launcher.job import Job
    from launcher.settings import Settings


class Fsdp(Strategy):
    """Each layer's weights are gathered when it computes (Zhao et al., 2023; torch's `fully_shard`)."""

    key: ClassVar[str] = "fsdp"
    cost: ClassVar[Cost] = "slower"
    summary: ClassVar[str] = "Shard the training over processes by torch's FSDP2"
    example: ClassVar[dict[str, object]] = {"reshard": True}
    conflicts: ClassVar[dict[str, str]] = {
        "adafactor": "transformers' Adafactor does not work on FSDP2's shards",
        "eight_bit_optimizer": "8-bit states do not work on FSDP2's shards, and sharded states are small already",
        "zero": "both shard the training",
        "optimizer_offload": "fsdp has its own: strategies.fsdp.offload: true",
    }

    reshard: bool = Field(
        default=True, description="Give a layer's weights back after forward and gather them again for backward"
    )
    offload: bool = Field(default=False, description="Keep the shards in host memory, weights with them")

    def notes(self, job: Job) -> list[str]:
        if job.processes == 1 and not self.offload:
            return ["no effect on one process: it holds everything itself"]
        return []

    def configure(self, settings: Settings) -> None:
        settings.form = "fsdp"
        settings.form_options = self.model_dump(mode="json")
