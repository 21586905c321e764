"""ZeRO: optimizer states, gradients and weights in shards over the processes, also in host memory or on a disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field

from launcher.strategies.base import Cost, Problem, Strategy

if TYPE_CHECKING:
    from launcher.job import Job
    from launcher.settings import Settings


class Zero(Strategy):
    """DeepSpeed's stages (Rajbhandari et al., 2020): 1 states, 2 gradients besides, 3 weights besides."""

    key: ClassVar[str] = "zero"
    cost: ClassVar[Cost] = "slower"
    summary: ClassVar[str] = "Shard the training over processes by DeepSpeed's ZeRO, also off the card"
    example: ClassVar[dict[str, object]] = {"stage": 2}
    conflicts: ClassVar[dict[str, str]] = {
        "eight_bit_optimizer": "bitsandbytes' states do not work on shards, and zero spreads them over the processes",
        "fsdp": "both shard the training",
        "optimizer_offload": "zero has its own: strategies.zero.offload: optimizer",
    }

    is_last_resort: ClassVar[bool] = True

    stage: Literal[1, 2, 3] = Field(
        default=2, description="What is sharded: 1 optimizer states, 2 gradients too, 3 weights too"
    )
    offload: Literal["optimizer", "parameters"] | None = Field(
        default=None, description="What lies off the card: optimizer states, or weights too (stage 3)"
    )
    nvme: str | None = Field(default=None, description="Folder on a fast disk to offload to (stage 3); absent: memory")
    config: str | None = Field(default=None, description="A DeepSpeed JSON file for what the recipe has no word for")

    def problems(self, job: Job) -> list[Problem]:
        found = []
        if self.offload == "parameters" and self.stage != 3:
            found.append(Problem("offload", f"stage {self.stage} holds all weights on the card; write stage: 3"))
        if self.nvme is not None and self.stage != 3:
            found.append(Problem("nvme", f"DeepSpeed writes to a disk in stage 3 only, not in {self.stage}"))
        if self.nvme is not None and self.offload is None:
            found.append(Problem("nvme", "nothing is offloaded; write offload: optimizer or parameters"))
        return found

    def notes(self, job: Job) -> list[str]:
        notes = []
        if job.processes == 1 and self.offload is None:
            notes.append("no effect on one process: it holds everything itself")
        if job.recipe.strategies.get("adafactor") is not None:
            notes.append(
                "adafactor keeps 4 bytes a parameter: its states cannot be factored on DeepSpeed's flat shards"
            )
        return notes

    @classmethod
    def candidates(cls, job: Job) -> list[Self]:
        return [cls(stage=1), cls(stage=2), cls(stage=3)] if job.processes > 1 else []

    def configure(self, settings: Settings) -> None:
        settings.form = "zero"
        settings.form_options = self.model_dump(mode="json")
