"""Data -> tokenised examples: those that an earlier process or run has kept, or made and kept for the next."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from launcher import cache
from launcher.data import Examples, read_data, tokenise
from launcher.data_source import DataSource, sources_of
from launcher.errors import DataError
from launcher.kept_examples import Prepared, keep_examples, read_examples
from launcher.load_table import hub_version
from launcher.model import apply_labels, model_version
from launcher.once_per_node import Turn
from launcher.plan import Plan
from launcher.recipe import Recipe
from launcher.sources import SourceError, stamp
from launcher.units import count, format_seconds

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

log = logging.getLogger(__name__)


def asked_key(plan: Plan) -> str:
    """Of what the recipe asks, before anything is looked at: processes and runs with the same are at the same."""
    recipe, longest = plan.recipe, plan.settings.max_length
    return cache.fingerprint(asked=_asked(plan), config=recipe.model.config, base=str(recipe.base), longest=longest)


def prepare(
    plan: Plan, config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase, cut: int | None, turn: Turn
) -> Prepared:
    """Texts longer than `cut` tokens are cut. What was made is kept by a process that is alone at it, as its answer."""
    told = read_examples(turn.answer) if turn.answer is not None else None
    if told is not None:
        return told
    key = _key(plan, config, cut)
    prepared = read_examples(key)
    if prepared is None:
        prepared = _make(plan, config, tokenizer, cut)
        if not turn.is_alone or not keep_examples(key, prepared):
            return prepared
        # From disk like every other process: the tokens leave this one's memory.
        prepared = read_examples(key) or prepared
    turn.answer = key
    return prepared


def _asked(plan: Plan) -> dict[str, Any]:
    recipe = plan.recipe
    return {
        "model": recipe.model.model_dump(exclude={"config"}),
        "task": recipe.task.model_dump(),
        "data": recipe.data.model_dump(),
        "seed": recipe.training.seed,
    }


def _key(plan: Plan, config: PretrainedConfig, cut: int | None) -> str:
    """Of all that the examples depend on; of the model's config that is the longest input and the labels' order."""
    recipe = plan.recipe
    sources = _sources(recipe)
    files = [stamp(file) for source in sources for file in source.files]
    hub = [hub_version(source, recipe.data) for source in sources if source.format == "hub"]
    model = model_version(recipe)
    return cache.fingerprint(asked=_asked(plan), files=files, hub=hub, tokenizer=model, cut=cut, labels=config.id2label)


def _sources(recipe: Recipe) -> list[DataSource]:
    try:
        return sources_of(recipe.data, recipe.base)
    except SourceError as error:
        raise DataError("data", [str(error)]) from None  # it was there when the recipe was checked


def _make(plan: Plan, config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase, cut: int | None) -> Prepared:
    recipe = plan.recipe
    raw = read_data(recipe)
    labels = apply_labels(config, recipe.task, raw.labels)
    notes = list(raw.notes)
    start = time.perf_counter()
    train, held = (
        _with_tokens(tokenise(table, recipe.task, labels, tokenizer, cut), table.source, notes) if table else None
        for table in (raw.train, raw.validation)
    )
    assert train is not None
    seconds = time.perf_counter() - start
    if plan.settings.fast_tokenizer and not tokenizer.is_fast:
        speed = (len(train) + (len(held) if held else 0)) / seconds
        log.warning("fast_tokenizer: this model has only a slow one: %s, %.0f texts/s", format_seconds(seconds), speed)
    return Prepared(train, held, raw.labels, tuple(notes))


def _with_tokens(examples: Examples, source: str, notes: list[str]) -> Examples:
    """Without the texts of which the tokenizer leaves nothing, not even special tokens: no model reads those."""
    keep = np.flatnonzero(examples.lengths.used)
    lost = len(examples) - len(keep)
    if not len(keep):
        raise DataError(source, ["the tokenizer leaves nothing of any text; is it that of another language?"])
    if not lost:
        return examples
    notes.append(f"{count(lost, 'text')} of {len(examples):,} dropped: no tokens")
    return examples.take(keep)
