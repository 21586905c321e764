"""The trained model as a Hugging Face folder that `pipeline` loads, with a card."""

from __future__ import annotations

import errno
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.build import Session
from launcher.disk import free_bytes, reason, writing
from launcher.errors import SaveError
from launcher.records import replace_folder
from launcher.tasks.base import Evaluation
from launcher.together import together
from launcher.units import count
from launcher.written_model import compare_with_disk, size_of, tensors_to_write

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Cost:
    """Of one save: seconds in which nothing is trained, bytes of weights written (0 but on the main process)."""

    seconds: float
    bytes: int


def save_model(session: Session, folder: Path, evaluation: Evaluation | None, update: int) -> Cost:
    """Weights (float32 safetensors), config, tokenizer and card; all processes call it, the main one writes.

    What was written is read back before it takes the place of an older one. SaveError, on all processes, where either
    fails: the older one stays then.
    """
    start = time.perf_counter()
    temporary, size = folder.with_name(folder.name + ".tmp"), 0
    weights = session.form.weights()
    with together(session.accelerator):
        if session.accelerator.is_main_process:
            size = _write(session, temporary, weights, model_card(session, evaluation, update))
            with writing(folder, size):
                replace_folder(temporary, folder)
    return Cost(time.perf_counter() - start, size)


def try_save(session: Session, folder: Path) -> Cost:
    """All of a save but to keep it, in a run's `folder`: what would fail at the run's end fails now, with SaveError."""
    start = time.perf_counter()
    temporary, size = folder / "trial-save.tmp", 0
    weights = session.form.weights()
    with together(session.accelerator):
        if session.accelerator.is_main_process:
            size = _write(session, temporary, weights, model_card(session, None, 0))
            try:
                # A better model lies beside the one that it is to replace until it is whole.
                if session.plan.recipe.training.keep_best is not None and free_bytes(folder) < size:
                    raise SaveError(str(folder), [reason(folder, errno.ENOSPC, size)])
            finally:
                shutil.rmtree(temporary)
    return Cost(time.perf_counter() - start, size)


def _write(session: Session, folder: Path, weights: dict[str, Tensor], card: str) -> int:
    """Writes and reads back; returns the bytes of the weights. SaveError leaves no folder behind."""
    model = session.form.bare
    tensors = tensors_to_write(model, weights)
    size = size_of(tensors)
    try:
        with writing(folder, size):
            folder.mkdir(parents=True, exist_ok=True)
            model.save_pretrained(folder, state_dict=dict(tensors), save_original_format=False)
            session.collator.tokenizer.save_pretrained(folder)
            (folder / "README.md").write_text(card, encoding="utf-8")
        compare_with_disk(folder, tensors)
    except SaveError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return size


def model_card(session: Session, evaluation: Evaluation | None, update: int) -> str:
    """What it is, how it was trained, how good it is beside the best constant answer."""
    recipe = session.plan.recipe
    training = recipe.training
    lines = [
        "---",
        "library_name: transformers",
        f"pipeline_tag: {session.plan.recipe.task.pipeline_tag}",
        "---",
        f"# {recipe.name}",
        "",
        f"Fine-tuned from `{recipe.model.source}` on `{recipe.data.train}` by frugal-launcher: "
        f"{count(update, 'update')} of {count(training.batch_size, 'example')}, "
        f"learning rate {training.learning_rate:g}, schedule {training.schedule}, seed {training.seed}.",
        "",
        f"Strategies: {', '.join(strategy.key for strategy in session.plan.strategies) or 'none'}.",
    ]
    if evaluation is not None:
        lines += ["", f"| metric | this model | {evaluation.floor_name} |", "| --- | ---: | ---: |"]
        lines += [
            f"| {name} | {value:.4f} | {evaluation.floor[name]:.4f} |" for name, value in evaluation.metrics.items()
        ]
    lines += [
        "",
        "```python",
        "from transformers import pipeline",
        "",
        recipe.task.usage("PATH_OF_THIS_FOLDER"),
        "```",
        "",
    ]
    return "\n".join(lines)
