"""The contract of a strategy: one file, one class, one way to save memory or time."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from launcher.data import Lengths
    from launcher.job import Job
    from launcher.settings import Settings

Cost = Literal["free", "slower", "changes_training"]


class Problem(NamedTuple):
    """`field` is one of the strategy's own, or empty when it is about the strategy as a whole."""

    field: str
    text: str


class Strategy(BaseModel):
    """Acts once, before training. Its fields are what the recipe may say under `strategies.KEY`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    key: ClassVar[str]
    cost: ClassVar[Cost]
    summary: ClassVar[str]
    # Fields as a recipe may state them: for the documentation, and what the contract tests train with.
    example: ClassVar[dict[str, object]]
    # Other strategy's key -> why the two exclude each other; stands in both.
    conflicts: ClassVar[dict[str, str]] = {}
    # Whether the planner takes it, where it may, only if nothing fits without: more of it is always faster.
    is_last_resort: ClassVar[bool] = False

    def problems(self, job: Job) -> list[Problem]:
        """All that makes it impossible for this model, batch size or machine."""
        return []

    def notes(self, job: Job) -> list[str]:
        """What a person should know before it runs: no effect here, or a price they may not expect."""
        return []

    def notes_on_lengths(self, lengths: Lengths, examples: int) -> list[str]:
        """The same, once the training texts are tokenised; one process runs up to `examples` of them per update."""
        return []

    def configure(self, settings: Settings) -> None:
        """Write what it decides into the settings it owns."""

    def change_model(self, model: PreTrainedModel) -> list[str]:
        """Change the module before the optimizer is made; returns facts worth saying. RecipeError where it cannot."""
        return []

    @classmethod
    def candidates(cls, job: Job) -> list[Self]:
        """Forms that the planner may try, gentlest first; of those that change training only with `memory.allow`."""
        return []
