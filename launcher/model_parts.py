"""Where a model of any family keeps its embeddings and its layers, and which parts of it are frozen."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel


def layer_list(model: PreTrainedModel) -> list[nn.Module]:
    """The layers from the input on; of an encoder-decoder the encoder's; empty where layers are shared (ALBERT)."""
    from torch import nn
    from transformers.modeling_layers import GradientCheckpointingLayer

    for module in model.modules():
        if isinstance(module, nn.ModuleList) and all(isinstance(m, GradientCheckpointingLayer) for m in module):
            return list(module)
    return []


def layer_classes(model: PreTrainedModel) -> list[str]:
    """Names of the classes that its layers are of."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return sorted(
        {type(module).__name__ for module in model.modules() if isinstance(module, GradientCheckpointingLayer)}
    )


def embedding_modules(model: PreTrainedModel) -> list[nn.Module]:
    """The embeddings block with its norm where the family has one, else every embedding table."""
    from torch import nn

    block = getattr(model.base_model, "embeddings", None)
    if isinstance(block, nn.Module):
        return [block]
    return [module for module in model.modules() if isinstance(module, nn.Embedding)]


def frozen_modules(model: nn.Module) -> list[nn.Module]:
    """The largest modules that have parameters, none of them trained."""
    found: list[nn.Module] = []
    _collect_frozen(model, found)
    return found


def _collect_frozen(module: nn.Module, found: list[nn.Module]) -> None:
    parameters = list(module.parameters())
    if not parameters:
        return
    if not any(parameter.requires_grad for parameter in parameters):
        found.append(module)
        return
    for child in module.children():
        _collect_frozen(child, found)
