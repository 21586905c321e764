"""ZeRO: optimizer states, gradients and weights in shards over the processes, also in host memory or on a disk."""

from __future__ import annotations

from ctypes.util import find_library
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field

from launcher.deepspeed_config import deepspeed_config
from launcher.settings import Settings
from launcher.strategies.base import Cost, Problem, Strategy
from launcher.units import format_bytes

if TYPE_CHECKING:
    from launcher.job import Job


class Zero(Strategy):
    """DeepSpeed's stages (Rajbhandari et al., 2020): 1 states, 2 gradients besides, 3 weights besides."""

    key: ClassVar[str] = "zero"
    cost: ClassVar[Cost] = "slower"
    summary: ClassVar[str] = "Shard the training over processes by DeepSpeed's ZeRO, also off the card"
    example: ClassVar[dict[str, object]] = {"stage": 2}
    conflicts: ClassVar[dict[str, str]] = {
        "eight_bit_optimizer": "8-bit states do not work on ZeRO's shards, and sharded states are small already",
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
        return [*found, *self._missing(job), *self._config_problems(job)]

    def _missing(self, job: Job) -> list[Problem]:
        """What this machine lacks, where it is the one that trains."""
        if job.target is not None or (job.processes == 1 and self.offload is None):
            return []
        if find_spec("deepspeed") is None:
            text = "DeepSpeed is not installed here (the launcher brings it on Linux only); use strategies.fsdp"
            return [Problem("", text)]
        if self.nvme is not None and self.stage == 3 and find_library("aio") is None:
            return [Problem("nvme", "DeepSpeed needs libaio, which is not here; install libaio-dev, or leave nvme out")]
        return []

    def _config_problems(self, job: Job) -> list[Problem]:
        settings = Settings()
        for strategy in job.recipe.strategies.chosen():
            strategy.configure(settings)
        if settings.form != self.key:  # another strategy excludes this one, which is told already
            return []
        _, problems = deepspeed_config(job.recipe, settings, job.processes)
        return [Problem("config", problem) for problem in problems]

    def notes(self, job: Job) -> list[str]:
        if job.processes == 1 and self.offload is None:
            return ["no effect on one process: it holds everything itself"]
        if job.recipe.strategies.get("adafactor") is None:
            return []
        size = job.model.parameters if job.model is not None else None
        whole = "" if size is None else f", {format_bytes(4 * size)} in all"
        text = f"adafactor keeps 4 bytes a parameter{whole}: its states cannot be factored on DeepSpeed's flat shards, "
        return [f"{text}and it steps otherwise than on one process"]

    @classmethod
    def candidates(cls, job: Job) -> list[Self]:
        return [cls(stage=1), cls(stage=2), cls(stage=3)] if job.processes > 1 else []

    def configure(self, settings: Settings) -> None:
        settings.form = "zero"
        settings.form_options = self.model_dump(mode="json")
