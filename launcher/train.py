"""The loop, and the one update that it repeats."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from launcher.batches import MicroBatch, Update
from launcher.build import Session

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class UpdateResult:
    """Of the whole update, over all processes. `loss` is the mean over its examples, before the step.

    `learning_rate` is None where the optimizer finds its own.
    """

    loss: float
    gradient_norm: float
    learning_rate: float | None
    skipped: bool


def train_update(session: Session, update: Update) -> UpdateResult:
    """One optimizer step whose gradient is that of the mean loss over the update's examples in one big batch."""
    loss = accumulate(session, update)
    norm = _clip(session)
    rate = session.optimizer.param_groups[0]["lr"]
    skipped = _step(session)
    # The schedule must wait for a step that was left out.
    if session.schedule is not None and not skipped:
        session.schedule.step()
    session.optimizer.zero_grad()
    whole = session.accelerator.reduce(loss, reduction="sum")
    return UpdateResult(float(whole), norm, rate, skipped)


def accumulate(session: Session, update: Update) -> Tensor:
    """Gradients of all micro-batches, summed; returns this process's part of the loss, shape ()."""
    total = torch.zeros((), device=session.accelerator.device)
    for number, micro_batch in enumerate(update.micro_batches, start=1):
        last = number == len(update.micro_batches)
        # Gradients travel between processes once an update, with its last micro-batch.
        with contextlib.nullcontext() if last else session.accelerator.no_sync(session.model):
            total += backward(session, micro_batch, update.examples)
    return total


def backward(session: Session, micro_batch: MicroBatch, examples: int) -> Tensor:
    """Adds one micro-batch's gradient; returns its part of the update's mean loss, detached."""
    length = session.cutter.padded_length(micro_batch.examples)
    batch = session.collator(session.examples, micro_batch.examples, length)
    logits = session.model(**batch.inputs).logits
    # A sum divided by the whole update's count: a mean of means would weigh small micro-batches too heavily.
    loss = session.plan.recipe.task.loss(logits, batch.labels) * (micro_batch.weight / examples)
    # Processes' gradients are averaged by whoever joins them, so each is scaled up by their number.
    session.accelerator.backward(loss * session.accelerator.num_processes)
    return loss.detach()


def rehearse(session: Session) -> None:
    """The largest micro-batch that the data can bring, once with and once without gradients already there.

    After the first update, so that optimizer states are in place: memory that runs out does so in the first seconds.
    Nothing of it is kept: no gradient, no step, and the random numbers go on as if it had not been.
    """
    worst = session.cutter.worst(session.plan.recipe.training.batch_size)
    devices = [session.accelerator.device] if session.accelerator.device.type == "cuda" else []
    with torch.random.fork_rng(devices), session.accelerator.no_sync(session.model):
        for _ in range(2):
            backward(session, worst, len(worst.examples))
    session.optimizer.zero_grad()


def _step(session: Session) -> bool:
    """Whether the scaler left the step out, because the fp16 gradient overflowed."""
    scaler = session.accelerator.scaler
    if scaler is None:
        session.optimizer.step()
        return False
    # By the scale, which only an overflow lowers: a fused optimizer is called either way and leaves the step out by
    # itself, so that Accelerate's optimizer_step_was_skipped is never true (1.15).
    before = scaler.get_scale()
    session.optimizer.step()
    return bool(scaler.get_scale() < before)


def _clip(session: Session) -> float:
    """The gradient's norm over all trained parameters, before it is clipped."""
    limit = session.plan.recipe.training.max_grad_norm
    trained = [parameter for parameter in session.model.parameters() if parameter.requires_grad]
    norm = session.accelerator.clip_grad_norm_(trained, limit if limit is not None else float("inf"))
    return float(norm)
