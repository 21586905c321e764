"""Adafactor: second moments kept as a row and a column instead of a matrix (Shazeer and Stern, 2018)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field

from launcher.strategies.base import Cost, Strategy

if TYPE_CHECKING:
    from launcher.job import Job
    from launcher.settings import Settings

PRESETS: dict[str, dict[str, object]] = {
    "external_rate": {"scale_parameter": False, "relative_step": False, "warmup_init": False},
    "own_rate": {"scale_parameter": True, "relative_step": True, "warmup_init": True, "lr": None},
}


class Adafactor(Strategy):
    """Of the optimizer's switches only two settings are valid together; each is a preset here."""

    key: ClassVar[str] = "adafactor"
    cost: ClassVar[Cost] = "changes_training"
    summary: ClassVar[str] = "Adafactor instead of AdamW"
    example: ClassVar[dict[str, object]] = {"preset": "external_rate"}
    conflicts: ClassVar[dict[str, str]] = {
        "eight_bit_optimizer": "both choose the optimizer",
        "fsdp": "transformers' Adafactor does not work on FSDP2's shards",
        "optimizer_offload": "both choose the optimizer",
    }

    preset: Literal["external_rate", "own_rate"] = Field(
        default="external_rate",
        description="external_rate: the recipe's learning rate and schedule; own_rate: Adafactor finds its own",
    )

    def notes(self, job: Job) -> list[str]:
        if self.preset == "own_rate":
            return ["own_rate: training.learning_rate, schedule and warmup are not used"]
        return []

    def configure(self, settings: Settings) -> None:
        settings.optimizer = "transformers.optimization:Adafactor"
        settings.optimizer_options = dict(PRESETS[self.preset])
        settings.scheduled = self.preset == "external_rate"

    @classmethod
    def candidates(cls, job: Job) -> list[Self]:
        return [cls()]
