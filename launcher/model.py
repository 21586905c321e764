"""The pretrained model and its tokenizer: float32 master weights, whatever the files hold."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from launcher.errors import ModelError
from launcher.recipe import Recipe
from launcher.sources import resolve
from launcher.tasks.base import Task

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

log = logging.getLogger(__name__)

# Position tables of this family start counting behind the padding's own row: 514 rows hold 512 tokens.
_OFFSET_POSITIONS = {
    "roberta",
    "xlm-roberta",
    "camembert",
    "xlm-roberta-xl",
    "roberta-prelayernorm",
    "xmod",
    "data2vec-text",
}


def load_config(recipe: Recipe) -> PretrainedConfig:
    """The model's config with the recipe's changes."""
    from transformers import AutoConfig

    config = _load(AutoConfig, recipe)
    unknown = [key for key in recipe.model.config if not hasattr(config, key)]
    if unknown:
        known = ", ".join(
            sorted(key for key, value in config.to_dict().items() if isinstance(value, int | float | str))
        )
        raise ModelError(
            recipe.model.source, [f"model.config.{key}: not in this model's config ({known})" for key in unknown]
        )
    config.update(recipe.model.config)
    return config  # type: ignore[no-any-return]


def apply_labels(config: PretrainedConfig, task: Task, labels: tuple[str, ...]) -> tuple[str, ...]:
    """Writes the labels into the config; a model that was trained on the same ones keeps its own order of them."""
    names: dict[Any, str] = dict(config.id2label or {})
    own = tuple(names[index] for index in sorted(names))
    ordered = own if sorted(own) == sorted(labels) else labels
    config.update(task.config_changes(ordered))
    return ordered


def load_tokenizer(recipe: Recipe, config: PretrainedConfig) -> PreTrainedTokenizerBase:
    """With a padding token: models without one pad with their end token, which attention never sees."""
    from transformers import AutoTokenizer

    tokenizer: PreTrainedTokenizerBase = _load(AutoTokenizer, recipe)
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise ModelError(recipe.model.source, ["its tokenizer has neither a padding nor an end token"])
        tokenizer.pad_token = tokenizer.eos_token
    # Decoders find a text's last token by the padding id in their config.
    config.pad_token_id = tokenizer.pad_token_id
    return tokenizer


def load_model(recipe: Recipe, config: PretrainedConfig) -> PreTrainedModel:
    """Safetensors where there are any, else torch's weights-only loader; new parts are named."""
    import torch
    import transformers

    auto = getattr(transformers, recipe.task.auto_model)
    model, info = _load(
        auto,
        recipe,
        config=config,
        dtype=torch.float32,
        weights_only=True,
        ignore_mismatched_sizes=True,
        output_loading_info=True,
    )
    _report_new_parts(model, info, recipe.model.source)
    return model  # type: ignore[no-any-return]


def length_limit(config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Tokens that the model can read at once; None where its positions have no end."""
    limits = []
    positions = getattr(config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        offset = 2 if config.model_type in _OFFSET_POSITIONS else 0
        limits.append(positions - offset)
    if tokenizer.model_max_length < 10**9:  # transformers says 10**30 for "not known"
        limits.append(int(tokenizer.model_max_length))
    return min(limits) if limits else None


def _load(auto: Any, recipe: Recipe, **options: Any) -> Any:
    """from_pretrained of any auto class; what goes wrong is told as the model's problem."""
    _, place = resolve(recipe.model.source, recipe.base)
    try:
        return auto.from_pretrained(
            place, revision=recipe.model.revision or "main", trust_remote_code=recipe.model.trust_remote_code, **options
        )
    except Exception as error:  # transformers raises OSError, ValueError, KeyError, RuntimeError ... for a bad model
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(recipe.model.source, [f"{auto.__name__}: {reason[:500]}"]) from error


def _report_new_parts(model: PreTrainedModel, info: dict[str, Any], source: str) -> None:
    """A new head is what fine-tuning starts with; a new body means that the weights do not belong to this model."""
    changed = sorted({*info["missing_keys"], *(entry[0] for entry in info["mismatched_keys"])})
    prefix = model.base_model_prefix + "."
    body = [name for name in changed if name.startswith(prefix)]
    if body and len(body) > 0.5 * sum(name.startswith(prefix) for name, _ in model.named_parameters()):
        raise ModelError(
            source, [f"its weights lack {len(body)} of this model's tensors, such as {', '.join(body[:3])}"]
        )
    if changed:
        log.info("new weights, trained from the start: %s", ", ".join(changed[:6]) + (" ..." if changed[6:] else ""))
