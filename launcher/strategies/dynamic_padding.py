"""Dynamic padding: pad to the longest text of the micro-batch instead of the longest that the model reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from launcher.strategies.base import Cost, Strategy

if TYPE_CHECKING:
    from launcher.data import Lengths
    from launcher.settings import Settings


class DynamicPadding(Strategy):
    """Examples stay in the order in which they were drawn."""

    key: ClassVar[str] = "dynamic_padding"
    cost: ClassVar[Cost] = "free"
    summary: ClassVar[str] = "Pad to the longest of the micro-batch"
    example: ClassVar[dict[str, object]] = {"multiple_of": 8}
    conflicts: ClassVar[dict[str, str]] = {"uniform_dynamic_padding": "it pads dynamically already"}

    multiple_of: int = Field(default=1, ge=1, le=512, description="Round padded lengths up; 8 suits tensor cores")

    def notes_on_lengths(self, lengths: Lengths, examples: int) -> list[str]:
        if lengths.used.min() == lengths.used.max():
            return ["no effect: every text has the same length"]
        return []

    def configure(self, settings: Settings) -> None:
        settings.padding = "longest"
        settings.pad_to_multiple_of = self.multiple_of
