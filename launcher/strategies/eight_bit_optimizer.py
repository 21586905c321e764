"""8-bit optimizer: AdamW states in 8 bits instead of 32, by bitsandbytes."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import Field

from launcher.shards import elements
from launcher.strategies.base import Cost, Strategy
from launcher.units import share

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from launcher.job import Job
    from launcher.settings import Settings


SMALLEST_8_BIT = 4096  # bitsandbytes' min_8bit_size: smaller tensors keep 32-bit states


class EightBitOptimizer(Strategy):
    """Embeddings keep 32-bit states: their gradients are sparse and uneven (Dettmers et al., 2022, section 2.3)."""

    key: ClassVar[str] = "eight_bit_optimizer"
    cost: ClassVar[Cost] = "changes_training"
    summary: ClassVar[str] = "AdamW with 8-bit states"
    example: ClassVar[dict[str, object]] = {"paged": False}
    conflicts: ClassVar[dict[str, str]] = {
        "adafactor": "both choose the optimizer",
        "fsdp": "8-bit states do not work on FSDP2's shards, and sharded states are small already",
        "optimizer_offload": "both choose the optimizer",
        "zero": "8-bit states do not work on ZeRO's shards, and sharded states are small already",
    }

    paged: bool = Field(default=False, description="Let states move to host memory when the card is full (CUDA)")

    def notes(self, job: Job) -> list[str]:
        if self.paged and job.device.kind == "cpu":
            return ["paged has no effect: there is no card to page from"]
        return []

    def configure(self, settings: Settings) -> None:
        settings.optimizer = "bitsandbytes.optim:" + ("PagedAdamW8bit" if self.paged else "AdamW8bit")
        settings.optimizer_options = {}

    @classmethod
    def candidates(cls, job: Job) -> list[Self]:
        return [cls()]

    def change_model(self, model: PreTrainedModel) -> list[str]:
        from bitsandbytes.optim.optimizer import GlobalOptimManager
        from torch import nn

        manager = GlobalOptimManager.get_instance()  # type: ignore[no-untyped-call]
        tables = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
        for weight in tables:
            manager.override_config(weight, "optim_bits", 32)
            # The manager is global and keyed by id(), which Python gives to another tensor once this one is gone.
            weakref.finalize(weight, manager.pid2config.pop, id(weight), None)
        kept = {id(weight) for weight in tables}
        sizes = [elements(p) for p in model.parameters() if p.requires_grad and id(p) not in kept]
        eight_bit = sum(size for size in sizes if size >= SMALLEST_8_BIT)
        if not eight_bit:
            return [f"no effect: no trained tensor but embeddings has {SMALLEST_8_BIT:,} elements"]
        return [f"8-bit states for {share(eight_bit, sum(elements(p) for p in model.parameters()))} of the parameters"]
