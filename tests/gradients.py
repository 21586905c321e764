"""The gradient of one big batch by transformers' own loss, to hold every other way of computing it against."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch


def big_batch_gradient(session: Any, indices: np.ndarray) -> dict[str, torch.Tensor]:
    """Mean loss of the examples in one batch, padded together; nothing of the launcher's batching or loss in it."""
    session.set_train_mode()
    # A copy: DDP's hooks hang on the parameters themselves.
    model = copy.deepcopy(session.accelerator.unwrap_model(session.model))
    examples, tokenizer = session.examples, session.collator.tokenizer
    encoded = [{name: examples.tokens[int(i)][name] for name in examples.tokens.column_names} for i in indices]
    batch = tokenizer.pad(encoded, return_tensors="pt")
    kind = torch.long if model.config.problem_type == "single_label_classification" else torch.float32
    labels = torch.tensor([examples.labels[int(i)] for i in indices], dtype=kind)
    model.zero_grad()
    model(**batch, labels=labels).loss.backward()
    return gradient_of(model)


def update_gradient(session: Any, indices: np.ndarray) -> dict[str, torch.Tensor]:
    """What `accumulate`, the first half of `train_update`, leaves behind for the update of these examples."""
    from launcher.train import accumulate

    session.set_train_mode()
    accumulate(session, session.cutter.cut(indices))
    taken = gradient_of(session.accelerator.unwrap_model(session.model))
    session.optimizer.zero_grad()
    return taken


def gradient_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def relative_error(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """The largest over all tensors of |found - expected| / |expected|.

    The divisor is no smaller than a hundredth of the whole gradient's norm: attention's key biases have a gradient of
    exactly zero, and what float32 leaves there is rounding of larger numbers.
    """
    assert found.keys() == expected.keys()
    whole = float(torch.cat([g.flatten() for g in expected.values()]).norm())
    errors = [float((found[n] - g).norm()) / max(float(g.norm()), 1e-2 * whole) for n, g in expected.items()]
    return max(errors)
