"""Metrics over the whole validation data; on the device there is never more than one micro-batch of logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from accelerate.utils import gather_object

from launcher.build import Session
from launcher.data import Examples
from launcher.tasks.base import Evaluation

if TYPE_CHECKING:
    from torch import Tensor

    from launcher.batches import Cutter


def evaluate(session: Session) -> Evaluation:
    """Of the validation examples; the same on every process."""
    assert session.validation is not None
    examples, cutter = session.validation
    logits = predict(session, examples, cutter)
    return session.plan.recipe.task.evaluate(logits, np.array(examples.labels), session.labels)


@torch.no_grad()
def logits_of(session: Session, examples: Examples, cutter: Cutter, indices: np.ndarray) -> Tensor:
    """Of one micro-batch, on the device: (examples, outputs), float32."""
    batch = session.collator(examples, indices, cutter.padded_length(indices))
    return session.form.logits(batch.inputs)


def predict(session: Session, examples: Examples, cutter: Cutter) -> np.ndarray:
    """Logits of all examples, in the data's order: (examples, outputs), float32, on every process."""
    session.model.eval()
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    for micro_batch in cutter.cut(np.arange(len(examples))).micro_batches:
        logits = logits_of(session, examples, cutter, micro_batch.examples)
        parts.append((micro_batch.examples, logits.cpu().numpy()))
    session.set_train_mode()
    gathered = gather_object(parts)
    order = np.concatenate([indices for indices, _ in gathered])
    result = np.empty((len(examples), parts[0][1].shape[1]), np.float32)
    result[order] = np.concatenate([logits for _, logits in gathered])
    assert len(np.unique(order)) == len(examples), "an example was not predicted"
    return result
