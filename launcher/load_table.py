"""A data source read whole, through `datasets`; what goes wrong on the way told in the data's words."""

from __future__ import annotations

import csv
import json
import logging
import tempfile
from typing import TYPE_CHECKING, Any

from launcher.data_source import DataSource, peek_columns
from launcher.errors import DataError
from launcher.recipe import Data

if TYPE_CHECKING:
    from datasets import Dataset

MOST_LETTERS_IN_A_CELL = 2**31 - 1  # the csv module stops at 131,072, and texts are longer
_AS_HUB_ID = "no such file or folder here; as a Hub id: "


def load_table(source: DataSource, data: Data, split: str) -> Dataset:
    """All rows of a source; DataError names the file and what is wrong with it."""
    import datasets

    _quiet()
    if source.format == "text_folders":
        return _text_folders(source, data)
    if source.files and not any(path.stat().st_size for path in source.files):
        raise DataError(source.place, ["is empty"])
    if source.format in ("csv", "tsv"):
        _check_tops(source, data)
    try:
        if source.format == "hub":
            return datasets.load_dataset(source.place, data.subset, split=split)
        return _read_files(source, data)
    except Exception as error:  # datasets wraps whatever a reader raises; the person needs the innermost reason
        broken = _broken_json(source, data) if source.format in ("json", "jsonl") else None
        what = _AS_HUB_ID if source.format == "hub" else ""
        raise DataError(source.place, [broken or what + _reason(error, data)]) from error


def hub_version(source: DataSource, data: Data) -> str:
    """Which state of a hub's data set `load_table` would read now; DataError where there is none."""
    import datasets

    _quiet()
    try:
        return str(datasets.load_dataset_builder(source.place, data.subset).cache_dir)  # ends in the commit
    except Exception as error:  # as above
        raise DataError(source.place, [_AS_HUB_ID + _reason(error, data)]) from error


def _quiet() -> None:
    import datasets

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(logging.CRITICAL)  # what it has to say of an error is told in a DataError


def _read_files(source: DataSource, data: Data) -> Dataset:
    from datasets import Features, Value, load_dataset

    builder = {"tsv": "csv", "jsonl": "json"}.get(source.format, source.format)
    options: dict[str, Any] = {}
    if builder == "csv":
        # Cells stay as written: "NA" and "null" are texts, 007 is not 7, and an empty label turns none into a float.
        names = peek_columns(source, data.encoding) or []
        options = {"sep": "\t" if source.format == "tsv" else ",", "keep_default_na": False}
        options["features"] = Features({name: Value("string") for name in names if name})
    if builder != "parquet":
        options |= {"encoding": data.encoding, "encoding_errors": data.encoding_errors}
    # A cache of its own: the shared one keeps the rows of a file that was changed within the same second.
    with tempfile.TemporaryDirectory(prefix="frugal-launcher-") as cache:
        files = [str(path) for path in source.files]
        return load_dataset(builder, data_files=files, split="train", keep_in_memory=True, cache_dir=cache, **options)


def _text_folders(source: DataSource, data: Data) -> Dataset:
    """CLASS/*.txt: one text a file, labelled by its folder."""
    from datasets import Dataset

    rows: dict[str, list[str]] = {"text": [], "label": []}
    problems: list[str] = []
    for path in source.files:
        try:
            text = path.read_bytes().decode(data.encoding, data.encoding_errors).removeprefix("\ufeff")
        except (OSError, UnicodeDecodeError) as error:
            problems.append(f"{path.parent.name}/{path.name}: {_reason(error, data)}")
            continue
        rows["text"].append(text)
        rows["label"].append(path.parent.name)
    if problems:
        raise DataError(source.place, problems[:20] + ([f"... and {len(problems) - 20} more"] if problems[20:] else []))
    return Dataset.from_dict(rows)


def _check_tops(source: DataSource, data: Data) -> None:
    """Header and first row of each file; where the row is longer, pandas would shift all columns and say nothing."""
    problems: list[str] = []
    names: list[str] = []
    csv.field_size_limit(MOST_LETTERS_IN_A_CELL)
    for path in source.files:
        with path.open(encoding=data.encoding, errors="replace", newline="") as lines:
            rows = csv.reader(lines, delimiter="\t" if source.format == "tsv" else ",")
            header, first = next(rows, []), next(rows, [])
        names = names or header
        missing = [repr(name) for name in names if name and name not in header]
        if missing:
            problems.append(f"{path.name}: no column {', '.join(missing)}, which {source.files[0].name} has")
        if len(first) > len(header):
            advice = "put a text with separators in it in quotes"
            problems.append(
                f"{path.name}: {len(first)} columns in its first row, {len(header)} in its header; {advice}"
            )
    if problems:
        raise DataError(source.place, problems)


def _broken_json(source: DataSource, data: Data) -> str | None:
    """File and line of the first thing that is no JSON; the reader counts rows, from 0 and by blocks."""
    for path in source.files:
        try:
            text = path.read_text(encoding=data.encoding, errors=data.encoding_errors)
        except UnicodeDecodeError:
            return None
        for number, line in enumerate(text.split("\n") if source.format == "jsonl" else [text]):
            try:
                json.loads(line or "{}")
            except json.JSONDecodeError as error:
                return f"{path.name}: line {number + error.lineno}, column {error.colno}: not JSON: {error.msg}"
    return None


def _reason(error: BaseException, data: Data) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, UnicodeDecodeError):
        return (
            f"byte {error.start} is not {data.encoding}; name the right data.encoding, "
            "or write data.encoding_errors: replace"
        )
    reason = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ") or type(error).__name__
    for part, words in _IN_WORDS.items():
        if part in reason:
            return words.format(reason=reason)
    return reason


# What pandas and datasets say -> what a person can do about it.
_IN_WORDS = {
    "corresponds to no data": "holds no rows",
    "column names don't match": "its files do not have the same columns; name one file",
    "EOF inside string": "{reason}; a quote that opens there is never closed",
    " fields in line ": "{reason}; put a text with separators in it in quotes",
}
