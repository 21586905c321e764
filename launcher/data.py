"""From the recipe's data section to tokenised examples; every row that is not used is counted and said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from launcher.columns import column_names, column_problems
from launcher.data_source import DataSource, find_data
from launcher.errors import DataError
from launcher.load_table import load_table
from launcher.recipe import Recipe
from launcher.sources import SourceError
from launcher.split import draw
from launcher.tasks.base import LabelError, Rows, Task
from launcher.units import count

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

MOST_ROWS_NAMED = 10


@dataclass(frozen=True)
class Table:
    """Rows that have all that the task needs, under the task's words for columns. `values` are the labels as read."""

    rows: Dataset
    values: list[Any]
    known_labels: tuple[str, ...]
    source: str
    # Each row's place in its source, from 1.
    numbers: np.ndarray

    def take(self, indices: np.ndarray) -> Table:
        values = [self.values[i] for i in indices]
        return replace(self, rows=self.rows.select(indices), values=values, numbers=self.numbers[indices])


@dataclass(frozen=True)
class RawData:
    """Read, cleaned and split, not yet tokenised."""

    train: Table
    validation: Table | None
    labels: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Lengths:
    """Tokens per example: `full` before and `used` after the cut; int64, shape (examples,)."""

    used: np.ndarray
    full: np.ndarray


@dataclass(frozen=True)
class Examples:
    """Tokenised. `labels` holds what the task made of each row's label."""

    tokens: Dataset
    labels: list[Any]
    lengths: Lengths

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: np.ndarray) -> Examples:
        lengths = Lengths(self.lengths.used[indices], self.lengths.full[indices])
        return Examples(self.tokens.select(indices), [self.labels[i] for i in indices], lengths)


def read_data(recipe: Recipe) -> RawData:
    """DataError lists what is wrong with the files or their rows."""
    notes: list[str] = []
    data, validation = recipe.data, recipe.data.validation
    train = _read_table(recipe, data.train, data.split, notes)
    held: Table | None = None
    if validation is not None and validation.split is not None:
        held = _read_table(recipe, data.train, validation.split, notes)
    elif validation is not None and validation.file is not None:
        held = _read_table(recipe, validation.file, data.split, notes)
    if data.max_rows is not None and data.max_rows < len(train.values):
        notes.append(f"max_rows: {data.max_rows:,} of {count(len(train.values), 'row')} are used")
        train = train.take(draw(_classes(recipe.task, train), data.max_rows, recipe.training.seed, stay=0))
    if validation is not None and validation.share is not None:
        train, held = _split(recipe, train, validation.share)
    labels = _label_names(recipe, train, held)
    if held is not None:
        notes += _duplicates(train.rows, held.rows)
    return RawData(train, held, labels, tuple(notes))


def tokenise(
    table: Table, task: Task, labels: tuple[str, ...], tokenizer: PreTrainedTokenizerBase, limit: int | None
) -> Examples:
    """Token columns of every row; those longer than `limit` tokens are cut. DataError names rows with bad labels."""

    def encode(batch: Rows) -> Rows:
        encoded = task.encode(batch, tokenizer, None)
        full = [len(ids) for ids in encoded["input_ids"]]
        long = [i for i, length in enumerate(full) if limit is not None and length > limit]
        if long:
            cut = task.encode({name: [values[i] for i in long] for name, values in batch.items()}, tokenizer, limit)
            for name, values in cut.items():
                for i, value in zip(long, values, strict=True):
                    encoded[name][i] = value
        return encoded | {"full_length": full, "length": [len(ids) for ids in encoded["input_ids"]]}

    values = _task_labels(table, task, labels)
    tokens = table.rows.map(encode, batched=True, remove_columns=table.rows.column_names, keep_in_memory=True)
    lengths = Lengths(np.array(tokens["length"], np.int64), np.array(tokens["full_length"], np.int64))
    return Examples(tokens.remove_columns(["length", "full_length"]), values, lengths)


def _read_table(recipe: Recipe, source: str, split: str, notes: list[str]) -> Table:
    try:
        found = find_data(source, recipe.base)
    except SourceError as error:
        raise DataError(source, [str(error)]) from None
    return _clean(load_table(found, recipe.data, split), recipe, found, notes)


def _clean(table: Dataset, recipe: Recipe, source: DataSource, notes: list[str]) -> Table:
    """Only the task's columns, only rows that have what it needs."""
    names = column_names(recipe)
    problems = column_problems(names, table.column_names, source.place) or _text_problems(names, table)
    if problems:
        raise DataError(source.place, problems)
    known = getattr(table.features[names["label"]], "names", None)
    keep: list[int] = []
    values: list[Any] = []
    dropped = dict.fromkeys(names, 0)
    texts = {role: name for role, name in names.items() if role != "label"}
    replaced = 0
    # One pass over plain values: rows stay in Arrow, only labels are held in Python.
    for index, row in enumerate(_rows(table.select_columns(list(dict.fromkeys(names.values()))))):
        value = row[names["label"]]
        if known and isinstance(value, int):
            row[names["label"]] = value = known[value] if value >= 0 else None  # ClassLabel's -1: not labelled
        empty = [role for role, name in names.items() if _is_empty(row[name])]
        for role in empty[:1]:
            dropped[role] += 1
        if not empty:
            replaced += any("\ufffd" in row[name] for name in texts.values())
            keep.append(index)
            values.append(value)
    total = sum(dropped.values())
    reasons = ", ".join(f"{number:,} without {names[role]!r}" for role, number in dropped.items() if number)
    if total:
        notes.append(f"{count(total, 'row')} of {len(table):,} dropped: {reasons}")
    if not keep:
        raise DataError(source.place, [f"no row has all that the task needs: {reasons}"])
    if replaced:
        notes.append(f"{count(replaced, 'row')} with bytes that are not in their encoding; a mark stands for each")
    rows = table.select_columns(list(texts.values())).select(keep)
    renamed = rows.rename_columns({name: role for role, name in texts.items() if name != role})
    return Table(renamed, values, tuple(known or ()), source.place, np.array(keep) + 1)


def _rows(table: Dataset) -> Iterator[dict[str, Any]]:
    """Read in batches, which is many times faster than row by row."""
    for batch in table.iter(batch_size=1000):
        for values in zip(*batch.values(), strict=True):
            yield dict(zip(batch, values, strict=True))


def _text_problems(names: dict[str, str], table: Dataset) -> list[str]:
    """A line for each column that should hold texts and does not."""
    kinds = {role: getattr(table.features[name], "dtype", "lists") for role, name in names.items() if role != "label"}
    return [
        f"data.columns.{role}: {names[role]!r} holds {kind}, not texts; name another column"
        for role, kind in kinds.items()
        if kind not in ("string", "large_string", "null")
    ]


def _is_empty(value: object) -> bool:
    if value is None or value != value:  # NaN is the one value that differs from itself
        return True
    return isinstance(value, str) and not value.strip()


def _classes(task: Task, table: Table) -> list[str]:
    """What to draw in proportion by: the label where it is one class, else nothing."""
    if getattr(task, "problem", None) == "single_label":
        return [str(value).strip() for value in table.values]
    return [""] * len(table.values)


def _split(recipe: Recipe, table: Table, share: float) -> tuple[Table, Table]:
    rows = len(table.values)
    size = round(rows * share)
    held = draw(_classes(recipe.task, table), size, recipe.training.seed, stay=1)
    if not len(held) or size == rows:
        problem = f"data.validation.share: {share} of {count(rows, 'row')} leaves a side empty"
        advice = "a class with one row stays in training; take another share, or more rows"
        raise DataError(recipe.data.train, [f"{problem}; {advice}"])
    return table.take(np.setdiff1d(np.arange(rows), held)), table.take(held)


def _label_names(recipe: Recipe, train: Table, held: Table | None) -> tuple[str, ...]:
    try:
        labels = recipe.task.label_names(train.values, train.known_labels)
        asked = recipe.task.label_names(held.values, ()) if held else ()
    except LabelError as error:
        raise DataError(recipe.data.train, [f"{column_names(recipe)['label']!r}: {error}"]) from None
    unseen = [name for name in asked if name not in labels]
    if unseen:
        named = ", ".join(map(repr, unseen[:MOST_ROWS_NAMED]))
        advice = "train on rows with them, or take them out"
        raise DataError("validation data", [f"labels that no training row has: {named}; {advice}"])
    if not labels and getattr(recipe.task, "problem", "") == "multi_label":
        raise DataError(recipe.data.train, ["no row has a label"])
    if getattr(recipe.task, "problem", "") == "single_label" and len(labels) < 2:
        raise DataError(recipe.data.train, [f"every row has the label {labels[0]!r}; a classifier needs two or more"])
    if getattr(recipe.task, "problem", "") == "single_label" and len(labels) > max(20, len(train.values) // 2):
        advice = "is the column right? For numbers write task.problem: regression"
        raise DataError(recipe.data.train, [f"{len(labels):,} labels in {len(train.values):,} rows; {advice}"])
    return labels


def _task_labels(table: Table, task: Task, labels: tuple[str, ...]) -> list[Any]:
    made: list[Any] = []
    problems: list[str] = []
    for number, value in zip(table.numbers, table.values, strict=True):
        try:
            made.append(task.label(value, labels))
        except LabelError as error:
            problems.append(f"row {number}: {error}")
    if problems:
        more = len(problems) - MOST_ROWS_NAMED
        raise DataError(table.source, problems[:MOST_ROWS_NAMED] + ([f"... and {more} more"] if more > 0 else []))
    return made


def _duplicates(train: Dataset, held: Dataset) -> list[str]:
    seen = {hash(tuple(row.values())) for row in _rows(train)}
    twice = sum(hash(tuple(row.values())) in seen for row in _rows(held))
    if not twice:
        return []
    texts = f"{count(twice, 'validation text')} of {len(held):,}"
    return [f"{texts} stand in the training data too: the score is too good by them"]
