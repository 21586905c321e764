"""The gradient of one big batch by transformers' own loss, to hold every other way of computing it against."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def big_batch_gradient(session: Any, indices: np.ndarray) -> dict[str, torch.Tensor]:
    """Mean loss of the examples in one batch, padded together; nothing of the launcher's batching or loss in it."""
    model = session.accelerator.unwrap_model(session.model)
    examples, tokenizer = session.examples, session.collator.tokenizer
    encoded = [{name: examples.tokens[int(i)][name] for name in examples.tokens.column_names} for i in indices]
    batch = tokenizer.pad(encoded, return_tensors="pt")
    kind = torch.long if model.config.problem_type == "single_label_classification" else torch.float32
    labels = torch.tensor([examples.labels[int(i)] for i in indices], dtype=kind)
    session.optimizer.zero_grad()
    session.set_train_mode()
    model(**batch, labels=labels).loss.backward()
    return take_gradient(session)


def update_gradient(session: Any, indices: np.ndarray) -> dict[str, torch.Tensor]:
    """What `accumulate`, the first half of `train_update`, leaves behind for the update of these examples."""
    from launcher.train import accumulate

    session.set_train_mode()
    accumulate(session, session.cutter.cut(indices))
    return take_gradient(session)


def take_gradient(session: Any) -> dict[str, torch.Tensor]:
    model = session.accelerator.unwrap_model(session.model)
    taken = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    session.optimizer.zero_grad()
    return taken


def relative_error(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """The largest over all tensors of |found - expected| / |expected|, the norm floored by the whole gradient's."""
    assert found.keys() == expected.keys()
    whole = float(torch.cat([g.flatten() for g in expected.values()]).norm())
    errors = [float((found[n] - g).norm()) / max(float(g.norm()), 1e-3 * whole) for n, g in expected.items()]
    return max(errors)
