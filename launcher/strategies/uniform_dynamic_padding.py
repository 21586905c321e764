"""Uniform dynamic padding: sort by length inside each update, so that texts of one length meet; the shuffle stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import Field

from launcher.strategies.base import Cost, Strategy

if TYPE_CHECKING:
    from launcher.data import Lengths
    from launcher.job import Job
    from launcher.settings import Settings


class UniformDynamicPadding(Strategy):
    """An update's gradient is a sum over its examples, so their order inside the update does not matter."""

    key: ClassVar[str] = "uniform_dynamic_padding"
    cost: ClassVar[Cost] = "free"
    summary: ClassVar[str] = "Sort by length inside each update, cut where it saves most padding"
    example: ClassVar[dict[str, object]] = {"multiple_of": 8}
    conflicts: ClassVar[dict[str, str]] = {"dynamic_padding": "it pads dynamically already"}

    multiple_of: int = Field(default=1, ge=1, le=512, description="Round padded lengths up; 8 suits tensor cores")

    def notes_on_lengths(self, lengths: Lengths, examples: int) -> list[str]:
        if lengths.used.min() == lengths.used.max():
            return ["no effect: every text has the same length"]
        return []

    def configure(self, settings: Settings) -> None:
        settings.padding = "longest"
        settings.pad_to_multiple_of = self.multiple_of
        settings.sorted_by_length = True

    @classmethod
    def candidates(cls, job: Job) -> list[Self]:
        return [cls()]
