"""Runs a plan's build and its worst update on fake tensors and follows the memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from launcher.build import Session, build_session
from launcher.devices import Device
from launcher.errors import ForecastError
from launcher.evaluate import logits_of
from launcher.forecast.cuda_rules import cuda_rules
from launcher.forecast.fake_world import fake_world
from launcher.forecast.peak import Forecast, find_peaks
from launcher.forecast.tracker import ACTIVATIONS, Tracker
from launcher.job import Job
from launcher.model import new_model
from launcher.pipeline import load_parts
from launcher.plan import make_plan
from launcher.processes import start_accelerator
from launcher.train import train_update, worst_update

if TYPE_CHECKING:
    from accelerate import Accelerator

UPDATES = 2  # optimizer states are born in the first and live from the second on


def trace(job: Job, device: Device) -> Forecast:
    """Of the run that `pipeline.run` would make of this job there; needs the data, for its lengths, and no weights.

    ForecastError where the run cannot be followed; never a number that is not believed.
    """
    plan = make_plan(job)
    if plan.settings.precision != "no":
        # The CPU's kernels take buffers in bf16 that no operator shows (GPT-2: 7 % of the peak, 2026-11-30), and CUDA
        # keeps other operators in float32 than the CPU's autocast, which is the one that would run here.
        raise ForecastError(
            device.name, ["mixed_precision cannot be forecast yet; take strategies.mixed_precision out"]
        )
    accelerator = start_accelerator(plan.settings.precision)
    tracker = Tracker()
    rules = nullcontext() if device.capability is None else cuda_rules(device.capability)
    with fake_world(), rules:
        session = build_session(plan, accelerator, load_parts(plan, new_model))
        tracker.name(session.model.parameters(), "weights")
        tracker.name(session.model.buffers(), "weights")
        with tracker, _phases(session, tracker):
            session.set_train_mode()
            for _ in range(UPDATES):
                tracker.phase = "forward"
                train_update(session, worst_update(session))
                tracker.name(_states(session.optimizer.state), "optimizer")
            if session.validation is not None:
                _evaluate(session, tracker)
    return find_peaks(tracker, device)


@contextmanager
def _phases(session: Session, tracker: Tracker) -> Iterator[None]:
    """Backward begins where the loss is handed over, the update where gradients are clipped."""
    accelerator: Accelerator = session.accelerator
    backward, clip = accelerator.backward, accelerator.clip_grad_norm_
    trained = [parameter for parameter in session.model.parameters() if parameter.requires_grad]

    def tracked_backward(loss: torch.Tensor, **options: Any) -> None:
        tracker.name_survivors("forward", ACTIVATIONS)
        tracker.phase = "backward"
        backward(loss, **options)
        tracker.name((p.grad for p in trained if p.grad is not None), "gradients")
        tracker.phase = "forward"

    def tracked_clip(*arguments: Any) -> Any:
        tracker.phase = "update"
        return clip(*arguments)

    accelerator.backward, accelerator.clip_grad_norm_ = tracked_backward, tracked_clip
    try:
        yield
    finally:
        accelerator.backward, accelerator.clip_grad_norm_ = backward, clip


def _states(state: dict[Any, dict[str, Any]]) -> Iterator[torch.Tensor]:
    for values in state.values():
        for value in values.values():
            if isinstance(value, torch.Tensor):
                yield value


def _evaluate(session: Session, tracker: Tracker) -> None:
    """The largest micro-batch of the evaluation."""
    assert session.validation is not None
    examples, cutter = session.validation
    tracker.phase = "evaluate"
    session.model.eval()
    logits_of(session, examples, cutter, cutter.worst(len(examples)).examples)
