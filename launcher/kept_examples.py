"""Prepared examples on disk, in a folder that processes and later runs map into memory instead of tokenising."""

from __future__ import annotations

import json
import logging
import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from launcher import cache
from launcher.data import Examples, Lengths

log = logging.getLogger(__name__)

MOST_BYTES = 16 * 2**30  # of all that is kept: what was used longest ago goes first


@dataclass(frozen=True)
class Prepared:
    """Read, split and tokenised. `labels` are in the data's order; `notes` are what a person should be told of it."""

    train: Examples
    held: Examples | None
    labels: tuple[str, ...]
    notes: tuple[str, ...]


def read_examples(key: str) -> Prepared | None:
    """What was kept under that key, its tokens on disk; None where nothing was, or it cannot be read."""
    folder = cache.folder_of("examples") / key
    try:
        facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
        train = _read(folder / "train")
        held = _read(folder / "held") if facts["has_held"] else None
        os.utime(folder)
        return Prepared(train, held, tuple(facts["labels"]), tuple(facts["notes"]))
    except (OSError, ValueError):  # pyarrow and json say ValueError of a broken file
        return None


def keep_examples(key: str, prepared: Prepared) -> bool:
    """Whole or not at all, and only by a process that is alone at it on its node; whether it is there now."""
    folder = cache.folder_of("examples") / key
    temporary = folder.with_name(f"{key}.{platform.node()}.tmp")
    try:
        # What a process that was killed has left.
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        _write(temporary / "train", prepared.train)
        if prepared.held is not None:
            _write(temporary / "held", prepared.held)
        facts = {"labels": prepared.labels, "notes": prepared.notes, "has_held": prepared.held is not None}
        (temporary / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
        # Only a broken one can be there: else it would have been read; or another node's, which is the same.
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
        _prune(folder)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        reason = f"{folder.parent} cannot be written ({error.strerror or error})"
        log.warning("data: %s: every process tokenises for itself, in the next run again", reason)
        return False
    return True


def _write(folder: Path, examples: Examples) -> None:
    examples.tokens.save_to_disk(folder)
    np.save(folder / "lengths.npy", np.stack([examples.lengths.used, examples.lengths.full]))
    (folder / "labels.json").write_text(json.dumps(examples.labels), encoding="utf-8")


def _read(folder: Path) -> Examples:
    from datasets import Dataset

    tokens = Dataset.load_from_disk(folder, keep_in_memory=False)
    used, full = np.load(folder / "lengths.npy")
    examples = Examples(tokens, json.loads((folder / "labels.json").read_text(encoding="utf-8")), Lengths(used, full))
    if not len(tokens) == len(examples) == len(used):
        raise ValueError(f"{folder}: {len(tokens)} texts, {len(examples)} labels, {len(used)} lengths")
    return examples


def _prune(newest: Path) -> None:
    """What is mapped into a process's memory stays there for it."""
    entries = [entry for entry in newest.parent.iterdir() if entry.is_dir()]
    entries.sort(key=lambda entry: (entry == newest, entry.stat().st_mtime), reverse=True)
    room = MOST_BYTES
    for entry in entries:
        room -= sum(file.stat().st_size for file in entry.rglob("*"))
        if room < 0 and entry != newest:
            shutil.rmtree(entry, ignore_errors=True)
