"""Fast tokenizer: the Rust one, many times the speed of a Python one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from launcher.strategies.base import Cost, Strategy

if TYPE_CHECKING:
    from launcher.job import Job
    from launcher.settings import Settings


class FastTokenizer(Strategy):
    """transformers 5 loads the Rust tokenizer wherever a model has one; this says what it costs where it has none."""

    key: ClassVar[str] = "fast_tokenizer"
    cost: ClassVar[Cost] = "free"
    summary: ClassVar[str] = "Ask for the Rust tokenizer, say what a slow one costs"
    example: ClassVar[dict[str, object]] = {}

    def configure(self, settings: Settings) -> None:
        settings.fast_tokenizer = True

    @classmethod
    def candidates(cls, job: Job) -> list[Self]:
        return [cls()]
