"""The model whole on each process; gradients averaged with the last micro-batch of an update (DDP)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

from launcher.forms.base import Form, apart
from launcher.machine import started_processes

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import Tensor
    from torch.nn import Parameter
    from transformers import PreTrainedModel

    from launcher.forms.base import MakeOptimizer
    from launcher.optimizer_states import State
    from launcher.settings import Precision


class Ddp(Form):
    """One process alone trains by it too: there is nothing to join then."""

    key: ClassVar[str] = "ddp"
    is_whole: ClassVar[bool] = True

    def _start(self, precision: Precision) -> Accelerator:
        import torch
        from accelerate import Accelerator

        if started_processes() > 1 and not torch.cuda.device_count():
            # With this Accelerate joins processes of its GPU launcher by gloo, and averages their gradients.
            os.environ["ACCELERATE_USE_CPU"] = "true"
        # Precision always said here: `accelerate launch` exports its own, which would count otherwise.
        return Accelerator(mixed_precision=precision, step_scheduler_with_optimizer=False)

    def wrap(self, model: PreTrainedModel, make_optimizer: MakeOptimizer, *, has_unused: bool) -> None:
        from accelerate.utils import DistributedDataParallelKwargs
        from torch.nn.parallel import DistributedDataParallel

        if self.accelerator.num_processes > 1:
            self.accelerator.ddp_handler = DistributedDataParallelKwargs(find_unused_parameters=has_unused)
        self.plain_optimizer = make_optimizer(model)
        # The model is on its device already.
        placed = [False, False]
        self.model, self.optimizer = self.accelerator.prepare(model, self.plain_optimizer, device_placement=placed)
        if self.accelerator.num_processes > 1 and not isinstance(self.model, DistributedDataParallel):
            raise apart(self.accelerator)

    def accumulating(self) -> AbstractContextManager[None]:
        return self.accelerator.no_sync(self.model)  # type: ignore[no-any-return]

    def step(self) -> tuple[Tensor, bool]:
        limit = self.plan.recipe.training.max_grad_norm
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        norm = self._clip(trained, limit if limit is not None else float("inf"))
        skipped = self._step()
        self.optimizer.zero_grad()
        return norm, skipped

    def _clip(self, trained: list[Parameter], limit: float) -> Tensor:
        """The norm before it is clipped."""
        norm: Tensor = self.accelerator.clip_grad_norm_(trained, limit)
        return norm

    def _step(self) -> bool:
        """Whether the scaler left the step out, because the fp16 gradient overflowed."""
        scaler = self.scaler
        if scaler is None:
            self.optimizer.step()
            return False
        # By the scale, which only an overflow lowers: a fused optimizer is called either way and leaves the step out by
        # itself, so that Accelerate's optimizer_step_was_skipped is never true (1.15).
        before = scaler.get_scale()
        self.optimizer.step()
        return bool(scaler.get_scale() < before)

    def weights(self) -> dict[str, Tensor]:
        return self.bare.state_dict() if self.accelerator.is_main_process else {}

    def whole_weight(self, tensor: Tensor) -> Tensor:
        return tensor.detach()

    def put_weight(self, tensor: Tensor, whole: Tensor) -> None:
        tensor.detach().copy_(whole)

    def whole_state(self, parameter: Parameter) -> State:
        state: State = self.plain_optimizer.state.get(parameter, {})
        return state

    def put_states(self, parameters: Mapping[str, Parameter], read: Callable[[str], State]) -> None:
        groups = self.plain_optimizer.param_groups
        numbers = {parameter: number for number, parameter in enumerate(chain(*(group["params"] for group in groups)))}
        states = {
            numbers[parameter]: {key: self._placed(parameter, value) for key, value in read(name).items()}
            for name, parameter in parameters.items()
        }
        # By torch's own word, which an optimizer may have changed: it knows on which device what belongs.
        now = self.plain_optimizer.state_dict()["param_groups"]
        self.plain_optimizer.load_state_dict({"state": states, "param_groups": now})

    def _placed(self, parameter: Parameter, value: Tensor | int | float) -> Tensor | int | float:
        """Of a state that was read; a copy where the optimizer would go on in the file's own memory."""
        if isinstance(value, int | float) or parameter.device.type != "cpu":
            return value
        return value.clone()
