"""Weights, gradients and optimizer states in shards, gathered layer by layer (torch's FSDP2)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from launcher.environment import layer_contradictions
from launcher.errors import LaunchError
from launcher.forms.base import apart
from launcher.forms.ddp import Ddp
from launcher.forms.meeting import meet_alone, meet_on_cpu
from launcher.model_parts import layer_classes

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import Tensor
    from torch.distributed.tensor import DTensor
    from torch.nn import Parameter
    from transformers import PreTrainedModel

    from launcher.forms.base import MakeOptimizer
    from launcher.optimizer_states import State
    from launcher.settings import Precision


class Fsdp(Ddp):
    """Computes what DDP does, to rounding: weights stay float32, half precision comes by autocast alone.

    Each micro-batch's gradient is reduced at once: to wait for the last would keep whole gradients.
    """

    key: ClassVar[str] = "fsdp"
    is_whole: ClassVar[bool] = False

    def _start(self, precision: Precision) -> Accelerator:
        import torch
        from accelerate import Accelerator, DistributedType, FullyShardedDataParallelPlugin, PartialState
        from accelerate.utils import InitProcessGroupKwargs
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy

        options = self.plan.settings.form_options
        has_card = torch.cuda.is_available()
        meet_alone()
        if not has_card:
            meet_on_cpu()
            # Accelerate gives FSDP to processes with cards only (1.15); it does what it does there on CPUs too.
            PartialState(backend="gloo")
            PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
        plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2,
            reshard_after_forward=bool(options["reshard"]),
            cpu_offload=CPUOffloadPolicy(pin_memory=has_card) if options["offload"] else False,
            auto_wrap_policy="transformer_based_wrap",
            # Left to itself Accelerate would train in half precision throughout.
            mixed_precision_policy=MixedPrecisionPolicy(),
            state_dict_type="FULL_STATE_DICT",
            cpu_ram_efficient_loading=True,
        )
        # transformers then reads the weights on the main process only.
        os.environ["ACCELERATE_USE_FSDP"] = "true"
        gloo = [InitProcessGroupKwargs(backend="cuda:nccl,cpu:gloo" if has_card else "gloo")]
        return Accelerator(
            mixed_precision=precision, fsdp_plugin=plugin, kwargs_handlers=gloo, step_scheduler_with_optimizer=False
        )

    def wrap(self, model: PreTrainedModel, make_optimizer: MakeOptimizer, *, has_unused: bool) -> None:
        from accelerate.utils import fsdp2_prepare_model
        from torch.distributed.fsdp import FSDPModule

        layers = layer_classes(model)
        problems = layer_contradictions(os.environ, layers)
        if problems:
            raise LaunchError("launch", problems)
        self.accelerator.state.fsdp_plugin.transformer_cls_names_to_wrap = layers
        # Not by `prepare`: it finds an optimizer's parameters again by their addresses, and those that a process has
        # left for the main one to read have none: new heads were trained in part only (Accelerate 1.15).
        self.model = fsdp2_prepare_model(self.accelerator, model)
        self.plain_optimizer = make_optimizer(model)
        self.optimizer = self.accelerator.prepare_optimizer(self.plain_optimizer, device_placement=False)
        if not isinstance(self.model, FSDPModule):
            raise apart(self.accelerator)

    def logits(self, inputs: Mapping[str, Any]) -> Tensor:
        with self.accelerator.autocast():
            return super().logits(inputs)

    def accumulating(self) -> AbstractContextManager[None]:
        return nullcontext()

    def _clip(self, trained: list[Parameter], limit: float) -> Tensor:
        from torch.distributed.tensor import DTensor
        from torch.nn.utils import clip_grad_norm_

        self.accelerator.unscale_gradients(self.optimizer)
        norm = clip_grad_norm_(trained, limit)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    @property
    def bare(self) -> PreTrainedModel:
        return self.model  # type: ignore[return-value]

    def weights(self) -> dict[str, Tensor]:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        return dict(get_model_state_dict(self.model, options=options))  # type: ignore[arg-type]

    def whole_weight(self, tensor: Tensor) -> Tensor:
        return self._whole(tensor.detach())

    def put_weight(self, tensor: Tensor, whole: Tensor) -> None:
        from torch.distributed.tensor import DTensor

        target = tensor.detach()
        if isinstance(target, DTensor):
            target.to_local().copy_(_own_part(target, whole).to_local())
        else:
            target.copy_(whole)

    def whole_state(self, parameter: Parameter) -> State:
        state = super().whole_state(parameter)
        return {key: value if isinstance(value, int | float) else self._whole(value) for key, value in state.items()}

    def _placed(self, parameter: Parameter, value: Tensor | int | float) -> Tensor | int | float:
        if isinstance(value, int | float) or value.shape != parameter.shape:
            return super()._placed(parameter, value)
        return _own_part(parameter, value)

    def _whole(self, tensor: Tensor) -> Tensor:
        """Gathered on the card, one at a time: shards that are offloaded visit it."""
        from torch.distributed.tensor import DTensor

        if not isinstance(tensor, DTensor):
            return tensor
        here: DTensor = tensor.to(self.accelerator.device)  # type: ignore[assignment]
        return here.full_tensor()


def _own_part(like: Tensor, whole: Tensor) -> DTensor:
    """This process's part of `whole`, cut as `like` is; nothing is sent."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)
