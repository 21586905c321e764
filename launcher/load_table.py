"""A data source read whole, through `datasets`; what goes wrong on the way told in the data's words."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

from launcher.data_source import DataSource
from launcher.errors import DataError
from launcher.recipe import Data
from launcher.units import count

if TYPE_CHECKING:
    from datasets import Dataset


def load_table(source: DataSource, data: Data, split: str, notes: list[str]) -> Dataset:
    """All rows of a source; DataError names the file and what is wrong with it; `notes` hears what was mended."""
    import datasets

    datasets.disable_progress_bars()
    if source.format == "text_folders":
        return _text_folders(source, data, notes)
    try:
        if source.format == "hub":
            return datasets.load_dataset(source.place, data.subset, split=split)
        table = _read_files(source, data)
    except Exception as error:  # datasets wraps whatever a reader raises; the person needs the innermost reason
        raise DataError(source.place, [_reason(error, data)]) from error
    if len(table) == 0:
        raise DataError(source.place, ["holds no rows"])
    return table


def _read_files(source: DataSource, data: Data) -> Dataset:
    from datasets import load_dataset

    builder = {"tsv": "csv", "jsonl": "json"}.get(source.format, source.format)
    options: dict[str, Any] = {}
    if builder == "csv":
        # "NA", "null" and "None" are texts, and an empty label must not turn its column into floats.
        options = {"sep": "\t" if source.format == "tsv" else ",", "keep_default_na": False}
    if builder != "parquet":
        options |= {"encoding": data.encoding, "encoding_errors": data.encoding_errors}
    # A cache of its own: the shared one keeps the rows of a file that was changed within the same second.
    with tempfile.TemporaryDirectory(prefix="frugal-launcher-") as cache:
        files = [str(path) for path in source.files]
        return load_dataset(builder, data_files=files, split="train", keep_in_memory=True, cache_dir=cache, **options)


def _text_folders(source: DataSource, data: Data, notes: list[str]) -> Dataset:
    """CLASS/*.txt: one text a file, labelled by its folder."""
    from datasets import Dataset

    rows: dict[str, list[str]] = {"text": [], "label": []}
    problems: list[str] = []
    replaced = 0
    for path in source.files:
        try:
            text = path.read_bytes().decode(data.encoding, data.encoding_errors)
        except (OSError, UnicodeDecodeError) as error:
            problems.append(f"{path.parent.name}/{path.name}: {_reason(error, data)}")
            continue
        replaced += "\ufffd" in text
        rows["text"].append(text)
        rows["label"].append(path.parent.name)
    if problems:
        raise DataError(source.place, problems[:20] + ([f"... and {len(problems) - 20} more"] if problems[20:] else []))
    if replaced:
        notes.append(f"{count(replaced, 'text')} with bytes that are not {data.encoding}; a mark stands in their place")
    return Dataset.from_dict(rows)


def _reason(error: BaseException, data: Data) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, UnicodeDecodeError):
        return (
            f"byte {error.start} is not {data.encoding}; name the right data.encoding, "
            "or write data.encoding_errors: replace"
        )
    return " ".join(str(error).split()) or type(error).__name__
