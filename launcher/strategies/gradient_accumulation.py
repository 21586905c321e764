"""Gradient accumulation: an update's examples go through in micro-batches, their gradients add up."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import Field, model_validator

from launcher.strategies.base import Cost, Problem, Strategy

if TYPE_CHECKING:
    from launcher.data import Lengths
    from launcher.job import Job
    from launcher.settings import Settings


class GradientAccumulation(Strategy):
    """micro-batch x steps x processes = batch size, whichever of the two the recipe states; or a limit in tokens."""

    key: ClassVar[str] = "gradient_accumulation"
    cost: ClassVar[Cost] = "slower"
    summary: ClassVar[str] = "Cut each update into micro-batches that fit"
    example: ClassVar[dict[str, object]] = {"micro_batch": 2}

    steps: int | None = Field(default=None, ge=1, description="Micro-batches that each process runs per update")
    micro_batch: int | None = Field(default=None, ge=1, description="Most examples in one micro-batch")
    tokens: int | None = Field(default=None, ge=1, description="Most tokens, padding included, in one micro-batch")
    attention: float = Field(
        default=0.0, ge=0, lt=1, description="With tokens: what each counts more per token of its text; for plans"
    )

    @model_validator(mode="after")
    def _one_of_three(self) -> Self:
        if sum(value is not None for value in (self.steps, self.micro_batch, self.tokens)) != 1:
            raise ValueError("state one of steps, micro_batch and tokens")
        return self

    def problems(self, job: Job) -> list[Problem]:
        batch_size, processes = job.recipe.training.batch_size, job.processes
        field = "steps" if self.steps is not None else "micro_batch"
        factor = self.steps if self.steps is not None else self.micro_batch
        if factor is None or batch_size % (factor * processes) == 0:
            return []
        product = f"{factor}" if processes == 1 else f"{factor} x {processes} processes"
        return [Problem(field, f"{product} does not divide training.batch_size {batch_size}" + _near(factor, job))]

    def notes(self, job: Job) -> list[str]:
        whole = job.recipe.training.batch_size // job.processes
        if self.steps == 1 or (self.micro_batch is not None and self.micro_batch >= whole):
            return ["no effect: one micro-batch holds the whole update"]
        return []

    def notes_on_lengths(self, lengths: Lengths, examples: int) -> list[str]:
        longest = int(lengths.used.max())
        if self.tokens is not None and self.tokens >= examples * longest * (1 + longest * self.attention):
            return ["no effect: the longest texts of a whole update fit into one micro-batch"]
        return []

    def configure(self, settings: Settings) -> None:
        settings.accumulation_steps = self.steps
        settings.micro_batch_examples = self.micro_batch
        settings.micro_batch_tokens = self.tokens
        settings.micro_batch_attention = self.attention


def _near(factor: int, job: Job) -> str:
    """The next factors below and above that do divide."""
    whole, rest = divmod(job.recipe.training.batch_size, job.processes)
    if rest:
        return ""
    divisors = [number for number in range(1, whole + 1) if whole % number == 0]
    near = [*[number for number in divisors if number < factor][-1:], *[n for n in divisors if n > factor][:1]]
    return f"; {' and '.join(map(str, near))} {'do' if len(near) > 1 else 'does'}"
