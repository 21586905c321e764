"""What a run reads before it is built: data, tokenizer, model; says what happened to each."""

from __future__ import annotations

import copy
import hashlib
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from accelerate.utils import gather_object, set_seed

from launcher import cache
from launcher.build import Parts, change_model
from launcher.data import Examples, Lengths
from launcher.errors import DataError
from launcher.model import apply_labels, fetch_weights, length_limit, load_config, load_model, load_tokenizer
from launcher.once_per_node import once_per_node
from launcher.plan import Plan
from launcher.prepare import asked_key, prepare
from launcher.units import count

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
    """Reads and tokenises on one process of the node, and again only where something has changed."""
    recipe = plan.recipe
    with once_per_node(asked_key(plan)) as turn:
        config = load_config(recipe)
        tokenizer = load_tokenizer(recipe, config)
        limit = length_limit(config, tokenizer)
        bounds = [bound for bound in (plan.settings.max_length, limit) if bound is not None]
        data = prepare(plan, config, tokenizer, min(bounds) if bounds else None, turn)
    held = 0 if data.held is None else len(data.held)
    log.info("data: %s to train on, %s to validate", count(len(data.train), "example"), f"{held:,}")
    for note in data.notes:
        log.warning("data: %s", note)
    labels = apply_labels(config, recipe.task, data.labels)
    if labels:
        log.info("%s: %s", count(len(labels), "label"), ", ".join(labels[:20]) + (" ..." if labels[20:] else ""))
    _note_lengths(plan, data.train.lengths, limit)
    return Loaded(config, tokenizer, labels, data.train, data.held, limit)


def fetch_model(plan: Plan) -> None:
    """A hub's weights come onto the node by one process; the others then find them in the cache."""
    model = plan.recipe.model
    with once_per_node(cache.fingerprint(weights=model.source, revision=model.revision)) as turn:
        fetch_weights(plan.recipe)
        turn.answer = "fetched"


def check_agreement(loaded: Loaded) -> None:
    """DataError where the processes, which have met, hold different examples: they would train on a mix of both."""
    digest = hashlib.sha256(repr(loaded.labels).encode())
    for examples in (loaded.train, loaded.held):
        if examples is not None:
            digest.update(examples.lengths.used.tobytes() + examples.lengths.full.tobytes())
    if len(set(gather_object([digest.hexdigest()]))) > 1:
        problem = "the processes have read different examples: the data changed as they started"
        raise DataError("data", [f"{problem}; start again"])


def make_parts(plan: Plan, loaded: Loaded, make_model: Callable[[Recipe, PretrainedConfig], PreTrainedModel]) -> Parts:
    """With a model as the plan's strategies change it."""
    set_seed(plan.recipe.training.seed)  # new weights are the same on every process and in every run
    # A copy: transformers writes into the config of a model, and what is loaded may be made into several models.
    model = make_model(plan.recipe, copy.deepcopy(loaded.config))
    for note in change_model(plan, model):
        log.info("%s", note)
    return Parts(model, loaded.tokenizer, loaded.labels, loaded.train, loaded.held, loaded.length_limit)


def _note_lengths(plan: Plan, lengths: Lengths, limit: int | None) -> None:
    most = math.ceil(plan.recipe.training.batch_size / plan.processes)
    for strategy in plan.strategies:
        for note in strategy.notes_on_lengths(lengths, most):
            log.info("%s: %s", strategy.key, note)
    longer = int((lengths.full > lengths.used).sum())
    wanted = plan.settings.max_length
    if longer and limit is not None and (wanted is None or wanted > limit):
        log.warning("%s cut to the %d tokens that the model can read", count(longer, "text"), limit)
