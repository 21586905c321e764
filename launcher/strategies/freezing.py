"""Freezing: parameters that stay as they are need no gradient and no optimizer state."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import Field, model_validator

from launcher.errors import RecipeError
from launcher.model_parts import embedding_modules, layer_list
from launcher.shards import elements
from launcher.strategies.base import Cost, Problem, Strategy
from launcher.units import share

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

    from launcher.job import Job


class Freezing(Strategy):
    """Modules that are frozen as a whole also run in eval mode: their dropout is off."""

    key: ClassVar[str] = "freezing"
    cost: ClassVar[Cost] = "changes_training"
    summary: ClassVar[str] = "Leave some parameters as they are"
    example: ClassVar[dict[str, object]] = {"embeddings": True, "first_layers": 1}
    is_last_resort: ClassVar[bool] = True

    embeddings: bool = Field(default=False, description="Freeze the embeddings")
    first_layers: int = Field(default=0, ge=0, description="Freeze so many layers, counted from the input")
    patterns: tuple[str, ...] = Field(
        default=(), strict=False, description="Freeze parameters whose name matches, such as '*.bias'"
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not (self.embeddings or self.first_layers or self.patterns):
            raise ValueError("names nothing to freeze; state embeddings, first_layers or patterns")
        return self

    def problems(self, job: Job) -> list[Problem]:
        layers = job.model.layers if job.model else None
        if layers is not None and self.first_layers > layers:
            return [Problem("first_layers", f"{self.first_layers} is more than the model's {layers} layers")]
        return []

    @classmethod
    def candidates(cls, job: Job) -> list[Self]:
        layers = (job.model.layers if job.model else None) or 0
        counts = sorted({layers * quarters // 4 for quarters in (0, 1, 2, 3)})
        return [cls(embeddings=True, first_layers=count) for count in counts]

    def change_model(self, model: PreTrainedModel) -> list[str]:
        problems: list[str] = []
        for module in self._modules(model, problems):
            module.requires_grad_(False)
        for pattern in self.patterns:
            named = [parameter for name, parameter in model.named_parameters() if fnmatchcase(name, pattern)]
            if not named:
                problems.append(f"strategies.freezing.patterns: {pattern!r} matches none of {_examples(model)}")
            for parameter in named:
                parameter.requires_grad_(False)
        frozen = sum(elements(p) for p in model.parameters() if not p.requires_grad)
        total = sum(elements(p) for p in model.parameters())
        if frozen == total:
            problems.append("strategies.freezing: freezes every parameter; nothing is left to train")
        if problems:
            raise RecipeError(type(model).__name__, problems)
        return [f"{frozen:,} of {total:,} parameters stay as they are ({share(frozen, total)})"]

    def _modules(self, model: PreTrainedModel, problems: list[str]) -> list[nn.Module]:
        modules = embedding_modules(model) if self.embeddings else []
        layers = layer_list(model)
        if self.first_layers > len(layers):
            problems.append(f"strategies.freezing.first_layers: {self.first_layers} of {len(layers)} layers found")
        return modules + layers[: self.first_layers]


def _examples(model: PreTrainedModel) -> str:
    names = [name for name, _ in model.named_parameters()]
    return ", ".join([*names[:2], "...", *names[-2:]])
