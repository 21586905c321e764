"""What a data source is, found without reading it whole: its kind, its files, the names of its columns."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from launcher.sources import SourceError, resolve

if TYPE_CHECKING:
    from launcher.recipe import Data

Format = Literal["csv", "tsv", "json", "jsonl", "parquet", "text_folders", "hub"]
_ENDINGS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}


@dataclass(frozen=True)
class DataSource:
    """`place` is a hub id for `hub`, else an absolute path; `files` are in the order in which they are read."""

    format: Format
    place: str
    files: tuple[Path, ...]


def find_data(source: str, base: Path) -> DataSource:
    """SourceError says what is wrong with the source."""
    kind, place = resolve(source, base)
    if kind == "hub":
        return DataSource("hub", place, ())
    path = Path(place)
    return _find_folder(source, path) if path.is_dir() else DataSource(_format(source, path), place, (path,))


def sources_of(data: Data, base: Path) -> list[DataSource]:
    """What is read: the training data, and the validation data where that is of its own. SourceError as find_data."""
    places = [data.train]
    if data.validation is not None and data.validation.file is not None:
        places.append(data.validation.file)
    return [find_data(place, base) for place in places]


def _find_folder(source: str, folder: Path) -> DataSource:
    classes = [entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    files = [path for entry in classes for path in entry.iterdir() if path.suffix.lower() == ".txt" and path.is_file()]
    texts = tuple(sorted(files))
    tables = tuple(sorted(path for path in folder.iterdir() if path.suffix.lower() in _ENDINGS))
    formats = {_ENDINGS[path.suffix.lower()] for path in tables}
    if texts and not tables:
        return DataSource("text_folders", str(folder), texts)
    if len(formats) == 1 and not texts:
        return DataSource(formats.pop(), str(folder), tables)
    if formats:
        found = ", ".join(sorted(formats) + (["text folders"] if texts else []))
        raise SourceError(f"{source!r} holds files of several kinds ({found}); name one file")
    raise SourceError(f"{source!r} holds neither data files ({', '.join(_ENDINGS)}) nor folders CLASS/*.txt")


def _format(source: str, path: Path) -> Format:
    ending = path.suffix.lower()
    if ending not in _ENDINGS:
        raise SourceError(f"{source!r} ends in {ending or 'nothing'}; known are {', '.join(_ENDINGS)}")
    return _ENDINGS[ending]


def peek_columns(source: DataSource, encoding: str) -> list[str] | None:
    """Names of the columns by the start of the first file; None where that cannot tell (a hub, a broken file).

    None of them where its rows are no mappings.
    """
    if source.format == "hub":
        return None
    if source.format == "text_folders":
        return ["text", "label"]
    if source.format == "parquet":
        return _parquet_columns(source.files[0])
    try:
        with source.files[0].open(encoding=encoding, errors="replace", newline="") as lines:
            if source.format in ("csv", "tsv"):
                return next(csv.reader(_without_mark(lines), delimiter="\t" if source.format == "tsv" else ","), None)
            return _json_columns(lines.readline() if source.format != "json" else lines.read(), source.format)
    except (OSError, LookupError, ValueError, csv.Error):
        return None


def _without_mark(lines: Iterable[str]) -> Iterator[str]:
    """A quote behind a byte order mark would be no quote."""
    for number, line in enumerate(lines):
        yield line if number else line.removeprefix("\ufeff")


def _json_columns(text: str, format: Format) -> list[str] | None:
    rows = json.loads(text)
    if format == "json" and rows == []:
        return None
    first = rows[0] if format == "json" and isinstance(rows, list) else rows
    return list(first) if isinstance(first, dict) else []


def _parquet_columns(path: Path) -> list[str] | None:
    import pyarrow
    from pyarrow import parquet

    try:
        return list(parquet.read_schema(path).names)
    except (OSError, pyarrow.ArrowException):
        return None
