"""Saves training states by every form and goes on from them by every other, on the processes of one launch.

portable_state_job.py FOLDER    FOLDER holds recipes *.yaml and pairs.json: whose state goes into which form

Each recipe is trained for six updates with a save to FOLDER/states/NAME after the third; then each pair's second one
loads and is trained for the last three. Whole weights go to FOLDER/NAME.pt and FOLDER/SAVED-NAME.pt.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from launcher import training_state
from launcher.machine import started_rank
from launcher.train import train_update
from tests.launches.forms_job import session_of

HALF, ALL = 3, 6


def train(session: Any, first: int, end: int) -> None:
    session.set_train_mode()
    for indices in session.sampler.updates(first, end):
        train_update(session, session.cutter.cut(indices))


def keep_weights(session: Any, path: Path) -> None:
    weights = session.form.weights()
    if started_rank() == 0:
        torch.save({name: tensor.clone() for name, tensor in weights.items()}, path)


def train_and_save(recipe: Path) -> None:
    session = session_of(recipe)
    train(session, 0, HALF)
    training_state.save(session, recipe.parent / "states" / recipe.stem, HALF)
    train(session, HALF, ALL)
    keep_weights(session, recipe.with_suffix(".pt"))


def go_on(recipe: Path, saved: str) -> None:
    session = session_of(recipe)
    update = training_state.load(session, recipe.parent / "states" / saved)
    train(session, update, ALL)
    keep_weights(session, recipe.with_name(f"{saved}-{recipe.stem}.pt"))


def main(folder: Path) -> None:
    for recipe in sorted(folder.glob("*.yaml")):
        train_and_save(recipe)
    for number, (saved, name) in enumerate(json.loads((folder / "pairs.json").read_text(encoding="utf-8"))):
        go_on(folder / f"{name}.yaml", saved)
        if number % 8 == 7:
            gc.collect()  # takes as long as a load
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
