"""The pretrained model and its tokenizer: float32 master weights, whatever the files hold."""

from __future__ import annotations

import difflib
import logging
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.errors import ModelError
from launcher.recipe import Recipe
from launcher.sources import resolve, stamp
from launcher.tasks.base import Task

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

log = logging.getLogger(__name__)

MOST_LETTERS = 300  # of a library's own message

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
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    config = _load(AutoConfig, recipe)
    unknown = [key for key in recipe.model.config if not hasattr(config, key)]
    if unknown:
        known = sorted(key for key, value in config.to_dict().items() if isinstance(value, int | float | str))
        raise ModelError(recipe.model.source, [_unknown_key(key, known) for key in unknown])
    problems: list[str] = []
    for key, value in recipe.model.config.items():
        try:
            config.update({key: value})
        except (StrictDataclassError, TypeError, ValueError) as error:
            problems.append(f"model.config.{key}: {_reason(error)}")
    if problems:
        raise ModelError(recipe.model.source, problems)
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
    # transformers makes an empty one where a folder has no tokenizer files, and every text becomes [UNK].
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ModelError(recipe.model.source, ["its tokenizer knows no words; are the tokenizer's files missing?"])
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise ModelError(recipe.model.source, ["its tokenizer has neither a padding nor an end token"])
        tokenizer.pad_token = tokenizer.eos_token
    # Decoders find a text's last token by the padding id in their config.
    config.pad_token_id = tokenizer.pad_token_id
    return tokenizer


def model_version(recipe: Recipe) -> list[object]:
    """Which state of config and tokenizer was loaded: a hub's commit, or what a folder's files look like now."""
    from huggingface_hub import try_to_load_from_cache

    kind, place = resolve(recipe.model.source, recipe.base)
    if kind == "path":
        return [stamp(file) for file in sorted(Path(place).iterdir())]
    config = try_to_load_from_cache(place, "config.json", revision=recipe.model.revision or "main")
    assert isinstance(config, str), "asked before the config was loaded"
    return [Path(config).parent.name]


def fetch_weights(recipe: Recipe) -> None:
    """Downloads what `load_model` would of a hub's model; not by it, for processes may talk while they load."""
    from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, WEIGHTS_INDEX_NAME, WEIGHTS_NAME
    from transformers.utils.hub import cached_file, get_checkpoint_shard_files

    place = recipe.model.source
    revision = recipe.model.revision or "main"
    try:
        for name in (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_NAME, WEIGHTS_INDEX_NAME):
            found = cached_file(place, name, revision=revision, _raise_exceptions_for_missing_entries=False)
            if found is not None:
                if name.endswith(".index.json"):
                    get_checkpoint_shard_files(place, found, revision=revision)  # type: ignore[no-untyped-call]
                return
    except Exception as error:  # as in _load
        raise ModelError(recipe.model.source, [f"its weights: {_reason(error)}"]) from error


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
    # transformers 5.24 makes trained parameters of tables that the family keeps fixed (RoFormer's sinusoids).
    with torch.device("meta"), unsharded():
        fixed = {name for name, p in new_model(recipe, config).named_parameters() if not p.requires_grad}
    for name in fixed:
        model.get_parameter(name).requires_grad_(False)
    return model  # type: ignore[no-any-return]


def new_model(recipe: Recipe, config: PretrainedConfig) -> PreTrainedModel:
    """The same model with weights of no meaning: no file of weights is read, on fake tensors none is made."""
    import torch
    import transformers
    from transformers.initialization import no_init_weights

    auto = getattr(transformers, recipe.task.auto_model)
    with no_init_weights():  # some draw from distributions by values, which fake tensors do not have
        model: PreTrainedModel = auto.from_config(
            config, dtype=torch.float32, trust_remote_code=recipe.model.trust_remote_code
        )
    model.tie_weights()  # part of the initialisation that was left out
    return model


@contextmanager
def unsharded() -> Iterator[None]:
    """Inside, transformers makes models whole, where it would shard them as they are made (ZeRO-3)."""
    from accelerate.state import AcceleratorState
    from transformers.integrations.deepspeed import (
        is_deepspeed_zero3_enabled,
        set_hf_deepspeed_config,
        unset_hf_deepspeed_config,
    )

    if not is_deepspeed_zero3_enabled():  # type: ignore[no-untyped-call]
        yield
        return
    unset_hf_deepspeed_config()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        set_hf_deepspeed_config(AcceleratorState().deepspeed_plugin.dschf)  # type: ignore[no-untyped-call]


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
    kind, place = resolve(recipe.model.source, recipe.base)
    try:
        return auto.from_pretrained(
            place, revision=recipe.model.revision or "main", trust_remote_code=recipe.model.trust_remote_code, **options
        )
    except Exception as error:  # transformers raises OSError, ValueError, KeyError, RuntimeError ... for a bad model
        what = "no such folder here; as a Hub id: " if kind == "hub" else ""
        raise ModelError(recipe.model.source, [f"{what}{auto.__name__}: {_reason(error)}"]) from error


def _unknown_key(key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    advice = f"; did you mean {close[0]}?" if close else f" ({', '.join(known)})"
    return f"model.config.{key}: not in this model's config{advice}"


def _reason(error: Exception) -> str:
    return textwrap.shorten(str(error), MOST_LETTERS, placeholder=" ...") or type(error).__name__


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
