"""Gradient checkpointing: keep each layer's input, compute the rest of its activations again in backward."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import Field

from launcher.errors import RecipeError
from launcher.strategies.base import Cost, Strategy

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from launcher.job import Job


class GradientCheckpointing(Strategy):
    """Non-reentrant. Frozen layers run in eval mode, where transformers checkpoints nothing, so they are left alone."""

    key: ClassVar[str] = "gradient_checkpointing"
    cost: ClassVar[Cost] = "slower"
    summary: ClassVar[str] = "Recompute activations instead of keeping them"
    example: ClassVar[dict[str, object]] = {"every_n_layers": 1}

    every_n_layers: int = Field(default=1, ge=1, description="Checkpoint every n-th layer; 1 is all of them")

    def notes(self, job: Job) -> list[str]:
        accumulation = job.recipe.strategies.get("gradient_accumulation")
        if accumulation is not None and getattr(accumulation, "micro_batch", None) == 1:
            return ["saves little at micro_batch 1; it pays together with a larger micro-batch"]
        return []

    def change_model(self, model: PreTrainedModel) -> list[str]:
        from transformers.modeling_layers import GradientCheckpointingLayer

        try:
            model.activation_checkpointing_enable({"use_reentrant": False}, every_n_layers=self.every_n_layers)
        except ValueError as error:
            raise RecipeError(type(model).__name__, [f"strategies.gradient_checkpointing: {error}"]) from None
        layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
        for layer in layers:
            if not any(parameter.requires_grad for parameter in layer.parameters()):
                layer.gradient_checkpointing = False
        on = sum(layer.gradient_checkpointing for layer in layers)
        if layers and not on:
            return ["no effect: every layer that it would recompute is frozen"]
        return [f"{on} of {len(layers)} layers are recomputed in backward"]

    @classmethod
    def candidates(cls, job: Job) -> list[Self]:
        return [cls()]
