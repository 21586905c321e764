"""The loop, and the one update that it repeats."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from launcher.batches import MicroBatch, Update
from launcher.build import Session

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class UpdateResult:
    """Of the whole update, over all processes. `loss` is the mean over its examples, before the step.

    `learning_rate` is None where the optimizer finds its own. Tensors have the shape (): reading their numbers waits
    for the device, so the caller does it once, when all is started.
    """

    loss: Tensor
    gradient_norm: Tensor
    learning_rate: float | None
    skipped: bool


def train_update(session: Session, update: Update) -> UpdateResult:
    """One optimizer step whose gradient is that of the mean loss over the update's examples in one big batch."""
    loss = accumulate(session, update)
    norm, rate, skipped = step(session)
    whole = session.accelerator.reduce(loss, reduction="sum")
    return UpdateResult(whole, norm, rate, skipped)


def step(session: Session) -> tuple[Tensor, float | None, bool]:
    """By the gradients that are there, which are used up: their norm, the rate, and whether the step was left out."""
    rate = session.optimizer.param_groups[0]["lr"]
    norm, skipped = session.form.step()
    # The schedule must wait for a step that was left out.
    if session.schedule is not None and not skipped:
        session.schedule.step()
    return norm, rate, skipped


def accumulate(session: Session, update: Update) -> Tensor:
    """Gradients of all micro-batches, summed; returns this process's part of the loss, shape ()."""
    total = torch.zeros((), device=session.accelerator.device)
    for number, micro_batch in enumerate(update.micro_batches, start=1):
        last = number == len(update.micro_batches)
        # Where the model is whole, gradients travel once an update, with its last micro-batch.
        with contextlib.nullcontext() if last else session.form.accumulating():
            total += backward(session, micro_batch, update.examples)
    return total


def backward(session: Session, micro_batch: MicroBatch, examples: int) -> Tensor:
    """Adds one micro-batch's gradient; returns its part of the update's mean loss, detached."""
    length = session.cutter.padded_length(micro_batch.examples)
    batch = session.collator(session.examples, micro_batch.examples, length)
    logits = session.form.logits(batch.inputs)
    # A sum divided by the whole update's count: a mean of means would weigh small micro-batches too heavily.
    loss = session.plan.recipe.task.loss(logits, batch.labels) * (micro_batch.weight / examples)
    session.form.backward(loss)
    return loss.detach()


def worst_update(session: Session) -> Update:
    """The largest micro-batch that the data can bring, then each that may take as much memory: all meet gradients.

    Once where every update is one micro-batch: there no gradient is ever waiting for it.
    """
    batch_size, cutter = session.plan.recipe.training.batch_size, session.cutter
    largest = cutter.largest(batch_size)
    share = math.ceil(min(batch_size, len(session.examples)) / cutter.processes)
    # Of the longest texts: of shorter ones a whole update may fit where one with long texts is cut.
    most = cutter.limits.most_examples(int(cutter.padding.padded(cutter.lengths).max()))
    is_whole = (most is None or most >= share) and not cutter.sorted_by_length
    micro_batches = largest if is_whole else (largest[-1], *largest)
    return Update(micro_batches, sum(len(micro_batch.examples) for micro_batch in micro_batches))


def rehearse(session: Session) -> None:
    """Runs forward and backward of the worst update.

    After the first update, so that optimizer states are in place: memory that runs out does so in the first seconds.
    Nothing of it is kept: every gradient is zero, there is no step, and the random numbers go on as if it had not been.
    """
    worst = worst_update(session)
    devices = [session.accelerator.device] if session.accelerator.device.type == "cuda" else []
    with torch.random.fork_rng(devices), session.form.accumulating():
        for micro_batch in worst.micro_batches:
            backward(session, replace(micro_batch, weight=0.0), worst.examples)
    session.form.forget()
