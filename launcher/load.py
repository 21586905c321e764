"""What a run reads before it is built: data, tokenizer, model; says what happened to each."""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from accelerate.utils import set_seed

from launcher.build import Parts, change_model
from launcher.data import Examples, RawData, read_data, tokenise
from launcher.errors import DataError
from launcher.model import apply_labels, length_limit, load_config, load_model, load_tokenizer
from launcher.plan import Plan
from launcher.units import count, format_seconds

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

    from launcher.recipe import Recipe

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Loaded:
    """All but the model; `config` is the one that the model will be made from."""

    config: PretrainedConfig
    tokenizer: PreTrainedTokenizerBase
    labels: tuple[str, ...]
    train: Examples
    held: Examples | None
    length_limit: int | None


def load_parts(plan: Plan) -> Parts:
    """Data, tokenizer and model, the model changed by the strategies."""
    return make_parts(plan, load_data(plan), load_model)


def load_data(plan: Plan) -> Loaded:
    """Reads and tokenises."""
    recipe = plan.recipe
    raw = read_data(recipe)
    held = 0 if raw.validation is None else len(raw.validation.values)
    log.info("data: %s to train on, %s to validate", count(len(raw.train.values), "example"), f"{held:,}")
    for note in raw.notes:
        log.warning("data: %s", note)
    config = load_config(recipe)
    tokenizer = load_tokenizer(recipe, config)
    labels = apply_labels(config, recipe.task, raw.labels)
    if labels:
        log.info("%s: %s", count(len(labels), "label"), ", ".join(labels[:20]) + (" ..." if labels[20:] else ""))
    limit = length_limit(config, tokenizer)
    train, validation = _tokenise(plan, raw, labels, tokenizer, limit)
    return Loaded(config, tokenizer, labels, train, validation, limit)


def make_parts(plan: Plan, loaded: Loaded, make_model: Callable[[Recipe, PretrainedConfig], PreTrainedModel]) -> Parts:
    """With a model as the plan's strategies change it."""
    set_seed(plan.recipe.training.seed)  # new weights are the same on every process and in every run
    # A copy: transformers writes into the config of a model, and what is loaded may be made into several models.
    model = make_model(plan.recipe, copy.deepcopy(loaded.config))
    for note in change_model(plan, model):
        log.info("%s", note)
    return Parts(model, loaded.tokenizer, loaded.labels, loaded.train, loaded.held, loaded.length_limit)


def _tokenise(
    plan: Plan, raw: RawData, labels: tuple[str, ...], tokenizer: PreTrainedTokenizerBase, limit: int | None
) -> tuple[Examples, Examples | None]:
    start = time.perf_counter()
    wanted = plan.settings.max_length
    bounds = [bound for bound in (wanted, limit) if bound is not None]
    cut = min(bounds) if bounds else None
    task = plan.recipe.task
    train = _with_tokens(tokenise(raw.train, task, labels, tokenizer, cut), raw.train.source)
    held = None
    if raw.validation is not None:
        held = _with_tokens(tokenise(raw.validation, task, labels, tokenizer, cut), raw.validation.source)
    seconds = time.perf_counter() - start
    if plan.settings.fast_tokenizer and not tokenizer.is_fast:
        speed = (len(train) + (len(held) if held else 0)) / seconds
        log.warning("fast_tokenizer: this model has only a slow one: %s, %.0f texts/s", format_seconds(seconds), speed)
    most = math.ceil(plan.recipe.training.batch_size / plan.processes)
    for strategy in plan.strategies:
        for note in strategy.notes_on_lengths(train.lengths, most):
            log.info("%s: %s", strategy.key, note)
    longer = int((train.lengths.full > train.lengths.used).sum())
    if longer and limit is not None and (wanted is None or wanted > limit):
        log.warning("%s cut to the %d tokens that the model can read", count(longer, "text"), limit)
    return train, held


def _with_tokens(examples: Examples, source: str) -> Examples:
    """Without the texts of which the tokenizer leaves nothing, not even special tokens: no model reads those."""
    keep = np.flatnonzero(examples.lengths.used)
    lost = len(examples) - len(keep)
    if not len(keep):
        raise DataError(source, ["the tokenizer leaves nothing of any text; is it that of another language?"])
    if not lost:
        return examples
    log.warning("data: %s of %s dropped: no tokens", count(lost, "text"), f"{len(examples):,}")
    return examples.take(keep)
