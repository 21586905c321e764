"""Max length: cut long texts; cheap where few are cut, and said how many before training."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import Field

from launcher.strategies.base import Cost, Strategy
from launcher.units import share

if TYPE_CHECKING:
    from launcher.data import Lengths
    from launcher.job import Job
    from launcher.settings import Settings


SHORTER = (384, 256, 192, 128, 96, 64)  # tokens


class MaxLength(Strategy):
    """Counts tokens with the special ones; of a pair the longer text is cut first."""

    key: ClassVar[str] = "max_length"
    cost: ClassVar[Cost] = "changes_training"
    summary: ClassVar[str] = "Cut long texts"
    example: ClassVar[dict[str, object]] = {"tokens": 128}
    is_last_resort: ClassVar[bool] = True

    tokens: int = Field(ge=8, description="Longest input, in tokens; longer ones are cut")

    def notes_on_lengths(self, lengths: Lengths, examples: int) -> list[str]:
        cut = int((lengths.full > lengths.used).sum())
        if not cut:
            return [f"no effect on the content: no text is longer than {self.tokens} tokens"]
        lost = int(lengths.full.sum() - lengths.used.sum())
        texts, tokens = share(cut, len(lengths.full)), share(lost, int(lengths.full.sum()))
        return [f"cuts {texts} of the texts and {tokens} of the tokens (longest: {lengths.full.max()} tokens)"]

    @classmethod
    def candidates(cls, job: Job) -> list[Self]:
        return [cls(tokens=tokens) for tokens in SHORTER]

    def configure(self, settings: Settings) -> None:
        settings.max_length = self.tokens
