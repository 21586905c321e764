"""Answers that took a while, kept on disk under everything that they depend on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.records import versions

if TYPE_CHECKING:
    from filelock import FileLock

MOST_ENTRIES = 2000  # a measurement takes some 30 KB


def cache_folder() -> Path:
    """`$FRUGAL_LAUNCHER_CACHE`, or the user's cache folder."""
    named = os.environ.get("FRUGAL_LAUNCHER_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(named) if named else Path(home) / "frugal-launcher"


def fingerprint(**parts: Any) -> str:
    """Of these parts, this code and the versions that decide the numbers."""
    text = json.dumps(parts | {"versions": versions(), "code": _code()}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def read(kind: str, key: str) -> Any:
    """What was written under that key; None where nothing was, or it cannot be read."""
    try:
        return json.loads(_place(kind, key).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def lock_of(kind: str, key: str) -> FileLock:
    """Not taken yet; it goes with its process, however that ends. OSError where its folder cannot be made."""
    from filelock import FileLock

    place = folder_of(kind) / f"{key}.lock"
    place.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(place)


@contextmanager
def alone(kind: str, key: str) -> Iterator[None]:
    """One process at a time; the next finds what the first has written. Without a folder to write to all go ahead."""
    try:
        lock = lock_of(kind, key)
        lock.acquire()
    except OSError:
        yield
        return
    try:
        yield
    finally:
        lock.release()


def write(kind: str, key: str, content: Any) -> None:
    """Whole or not at all; a folder that cannot be written only costs the time again."""
    place = _place(kind, key)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_name(f"{place.name}.{os.getpid()}")
        temporary.write_text(json.dumps(content), encoding="utf-8")
        temporary.replace(place)
        _prune(place.parent)
    except OSError:
        return


def folder_of(kind: str) -> Path:
    """Where one kind of answers lies."""
    return cache_folder() / kind


def _place(kind: str, key: str) -> Path:
    return folder_of(kind) / f"{key}.json"


def _prune(folder: Path) -> None:
    """The oldest go."""
    entries = sorted(folder.iterdir(), key=lambda entry: entry.stat().st_mtime)
    for entry in entries[: max(0, len(entries) - MOST_ENTRIES)]:
        entry.unlink(missing_ok=True)


@lru_cache
def _code() -> str:
    """Of the package's own files: a changed line makes every answer stale."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()
