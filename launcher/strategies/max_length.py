"""Max length: cut long texts; cheap where few are cut, and said how many before training."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from launcher.strategies.base import Cost, Strategy
from launcher.units import share

if TYPE_CHECKING:
    from launcher.data import Lengths
    from launcher.settings import Settings


class MaxLength(Strategy):
    """Counts tokens with the special ones; of a pair the longer text is cut first."""

    key: ClassVar[str] = "max_length"
    cost: ClassVar[Cost] = "changes_training"
    summary: ClassVar[str] = "Cut long texts"
    example: ClassVar[dict[str, object]] = {"tokens": 128}

    tokens: int = Field(ge=8, description="Longest input, in tokens; longer ones are cut")

    def notes_on_lengths(self, lengths: Lengths, examples: int) -> list[str]:
        cut = int((lengths.full > lengths.used).sum())
        if not cut:
            return [f"no effect on the content: no text is longer than {self.tokens} tokens"]
        lost = int(lengths.full.sum() - lengths.used.sum())
        texts, tokens = share(cut, len(lengths.full)), share(lost, int(lengths.full.sum()))
        return [f"cuts {texts} of the texts and {tokens} of the tokens (longest: {lengths.full.max()} tokens)"]

    def configure(self, settings: Settings) -> None:
        settings.max_length = self.tokens
