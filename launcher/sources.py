"""Where a model or data set lies: a path, a place inside an installed package, or a hub id."""

import difflib
import importlib.util
import re
from pathlib import Path
from typing import Literal

PACKAGE = "package://"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
Kind = Literal["path", "hub"]


class SourceError(ValueError):
    """A source that leads nowhere; the message says why and what would do."""


def resolve(source: str, base: Path) -> tuple[Kind, str]:
    """A local path made absolute against `base`, or the hub id as it stands; SourceError where it is neither."""
    if source.startswith(PACKAGE):
        return "path", str(_package_path(source))
    path = Path(source).expanduser()
    path = path if path.is_absolute() else base / path
    if path.exists():
        return "path", str(path.resolve())
    if _looks_like_hub_id(source):
        return "hub", source
    raise SourceError(f"{source!r} is not there (looked in {path.parent})" + _similar(path))


def stamp(file: Path) -> tuple[str, int, int, int]:
    """Which file, as it is now: what it holds does not change without one of size and times (ns)."""
    seen = file.stat()
    return str(file), seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def _similar(path: Path) -> str:
    """A neighbour whose name is nearly that."""
    neighbours = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, neighbours, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _looks_like_hub_id(source: str) -> bool:
    """`owner/name` or `name`, without the ending of a file."""
    has_file_ending = Path(source).suffix.lower() in {".csv", ".tsv", ".json", ".jsonl", ".parquet", ".txt"}
    return HUB_ID.fullmatch(source) is not None and not has_file_ending and not source.startswith("..")


def _package_path(source: str) -> Path:
    package, _, inside = source.removeprefix(PACKAGE).partition("/")
    if not package.isidentifier():
        advice = "; write it as in Python's import, with _ for -" if "-" in package else ""
        raise SourceError(f"{source!r}: {package!r} is not a package's import name{advice}")
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise SourceError(f"{source!r}: package {package} is not installed; install it with pip")
    if not spec.submodule_search_locations:
        raise SourceError(f"{source!r}: {package} is a single module and holds no files")
    root = Path(next(iter(spec.submodule_search_locations))).resolve()
    path = (root / inside).resolve()
    if not path.is_relative_to(root):
        raise SourceError(f"{source!r} leaves the package; write a path inside {package}")
    if not path.exists():
        raise SourceError(f"{source!r}: package {package} has no {inside!r}")
    return path
