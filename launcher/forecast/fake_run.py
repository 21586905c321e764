"""A plan's own session on fake tensors, run phase by phase under a tracker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from launcher.batches import MicroBatch, Update
from launcher.build import Session, build_session
from launcher.devices import Device
from launcher.evaluate import logits_of
from launcher.forecast.cpu_kernels import buffers_of
from launcher.forecast.cuda_rules import cuda_rules
from launcher.forecast.fake_processes import after_wrapping, before_wrapping, fake_processes
from launcher.forecast.fake_world import fake_world
from launcher.forecast.result import ACTIVATIONS, GRADIENTS, OPTIMIZER, WEIGHTS
from launcher.forecast.tracker import Tracker
from launcher.forecast.work import WorkRecorder
from launcher.load import Loaded, make_parts
from launcher.model import new_model
from launcher.plan import Plan
from launcher.processes import start_form
from launcher.train import backward, step, train_update


class FakeRun:
    """The product's own steps; the tracker follows what they hold, the recorder what they do."""

    def __init__(self, session: Session, tracker: Tracker, recorder: WorkRecorder) -> None:
        self.session, self.tracker, self.recorder = session, tracker, recorder

    def update(self, update: Update) -> None:
        """One optimizer step, from the first micro-batch to the zeroed gradients."""
        self.tracker.phase = "forward"
        train_update(self.session, update)
        self.tracker.name(_states(self.session.optimizer.state), OPTIMIZER)

    def step(self) -> None:
        """The optimizer's, by gradients of every trained parameter's shape: quicker than a backward that makes them."""
        self.give_gradients()
        step(self.session)
        self.tracker.name(_states(self.session.optimizer.state), OPTIMIZER)

    def fill(self) -> None:
        """Optimizer states and gradients in place, as after a micro-batch."""
        form = self.session.form
        if form.is_whole and form.accelerator.num_processes == 1:
            self.step()
            self.give_gradients()
            return
        # Shards and buckets are filled by a backward alone.
        first = MicroBatch(np.arange(1))
        self.update(Update((first,), 1))
        backward(self.session, first, 1)

    def give_gradients(self) -> None:
        """As after a micro-batch."""
        self.tracker.phase = "backward"
        trained = [parameter for parameter in self.session.model.parameters() if parameter.requires_grad]
        for parameter in trained:
            parameter.grad = torch.empty_like(parameter)
        self.tracker.name((parameter.grad for parameter in trained if parameter.grad is not None), GRADIENTS)
        self.tracker.phase = "forward"

    def evaluate(self) -> None:
        """The largest micro-batches of the evaluation."""
        assert self.session.validation is not None
        examples, cutter = self.session.validation
        self.tracker.phase = "evaluate"
        self.session.model.eval()
        for micro_batch in cutter.largest(len(examples)):
            logits_of(self.session, examples, cutter, micro_batch.examples)


@contextmanager
def fake_run(plan: Plan, loaded: Loaded, device: Device, *, with_work: bool) -> Iterator[FakeRun]:
    """Inside, everything runs on fake tensors as they would lie on the device; `with_work` is recorded only if asked.

    To record takes a tenth of the time.
    """
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)  # else the first plan's precision would hold for all
    precision = plan.settings.precision
    # Accelerate on a CPU does bf16 only; cuda_rules turns it into the precision asked for.
    tracker, recorder = Tracker(buffers_of if device.kind == "cpu" else None), WorkRecorder()
    rules = nullcontext() if device.capability is None else cuda_rules(device.capability, precision)
    with ExitStack() as stack:
        stack.enter_context(fake_processes(plan, [tracker, recorder], on_card=device.kind == "cuda"))
        form = start_form(plan, "no" if precision == "no" else "bf16")
        before_wrapping(form)
        stack.enter_context(fake_world())
        stack.enter_context(rules)
        session = build_session(plan, form, make_parts(plan, loaded, new_model))
        after_wrapping(session)
        tracker.name(session.model.parameters(), WEIGHTS)
        tracker.name(session.model.buffers(), WEIGHTS)
        run = FakeRun(session, tracker, recorder)
        # The last one entered is called first, as the tracker must be.
        with recorder if with_work else nullcontext(), tracker, _phases(run):
            session.set_train_mode()
            yield run


@contextmanager
def _phases(run: FakeRun) -> Iterator[None]:
    """Backward begins where the loss is handed over, the update where the step is taken."""
    session, tracker, form = run.session, run.tracker, run.session.form
    backward, take_step = form.backward, form.step
    trained = [parameter for parameter in session.model.parameters() if parameter.requires_grad]

    def tracked_backward(loss: torch.Tensor) -> None:
        tracker.name_survivors("forward", ACTIVATIONS)
        tracker.phase = "backward"
        backward(loss)
        tracker.name((p.grad for p in trained if p.grad is not None), GRADIENTS)
        tracker.phase = "forward"

    def tracked_step() -> tuple[torch.Tensor, bool]:
        tracker.phase = "update"
        return take_step()

    with patch.object(form, "backward", tracked_backward), patch.object(form, "step", tracked_step):
        yield


def _states(state: dict[Any, dict[str, Any]]) -> Iterator[torch.Tensor]:
    for values in state.values():
        for value in values.values():
            if isinstance(value, torch.Tensor):
                yield value
