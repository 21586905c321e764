"""Optimizer states, gradients and weights in shards by stage, also off the card (DeepSpeed's ZeRO)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from launcher.deepspeed_config import deepspeed_config
from launcher.errors import CheckpointError, LaunchError, RecipeError
from launcher.forms import zero_states
from launcher.forms.base import Form
from launcher.forms.meeting import meet_alone, meet_on_cpu
from launcher.strategies.mixed_precision import FP16_UNDER_ZERO

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import Tensor
    from torch.amp import GradScaler
    from torch.nn import Parameter
    from transformers import PreTrainedModel

    from launcher.forms.base import MakeOptimizer
    from launcher.optimizer_states import State
    from launcher.settings import Precision


class Zero(Form):
    """Computes what DDP does, to rounding, with the plan's own optimizer and no other."""

    key: ClassVar[str] = "zero"

    def _start(self, precision: Precision) -> Accelerator:
        import deepspeed
        import torch
        from accelerate import Accelerator, DeepSpeedPlugin
        from accelerate.utils import InitProcessGroupKwargs

        if self.plan.settings.precision == "fp16":  # put together by the planner: `check` refuses a recipe's
            raise LaunchError("launch", [FP16_UNDER_ZERO])
        logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
        handlers = []
        meet_alone()
        if not torch.cuda.is_available():
            meet_on_cpu()
            handlers = [InitProcessGroupKwargs(backend="gloo")]
            # Compiled at its first use, for a minute, to do what gloo does.
            deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        config, problems = deepspeed_config(self.plan.recipe, self.plan.settings, self.plan.processes)
        if problems:  # `check` has found those of the recipe; a plan may say more, or the file have changed
            raise RecipeError(str(self.plan.settings.form_options["config"]), problems)
        plugin = DeepSpeedPlugin(hf_ds_config=config, zero3_init_flag=config["zero_optimization"]["stage"] == 3)
        # Accelerate writes infinity there, which is no JSON (1.15).
        plugin.deepspeed_config["steps_per_print"] = config["steps_per_print"]
        # Half precision by DeepSpeed's config, as autocast: Accelerate's own word would make the weights half too.
        return Accelerator(
            mixed_precision="no",
            deepspeed_plugin=plugin,
            kwargs_handlers=handlers,
            step_scheduler_with_optimizer=False,
        )

    def wrap(self, model: PreTrainedModel, make_optimizer: MakeOptimizer, *, has_unused: bool) -> None:
        self.plain_optimizer = optimizer = make_optimizer(model)
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        # transformers, which shards a model as it loads, would save it under the names of all older formats (5.24).
        model._weight_conversions = None  # type: ignore[assignment]
        stage, wanted = self.plan.settings.form_options["stage"], type(optimizer)
        found, inner = self.engine.zero_optimization_stage(), type(self.engine.optimizer.optimizer)
        if found != stage:
            raise LaunchError("launch", [f"ZeRO {stage} was asked for, DeepSpeed runs {found}"])
        if inner is not wanted:
            raise LaunchError("launch", [f"DeepSpeed put {inner.__name__} in the place of {wanted.__name__}"])

    def records(self) -> dict[str, object]:
        return {"ds_config.json": self.engine.config}

    @property
    def engine(self) -> Any:
        """DeepSpeed's, which is the wrapped model."""
        return self.model

    def backward(self, loss: Tensor) -> None:
        self.engine.backward(loss * self.accelerator.num_processes, scale_wrt_gas=False)

    def step(self) -> tuple[Tensor, bool]:
        import torch

        self.engine.step()
        norm = self.engine.get_global_grad_norm()
        skipped = not self.engine.was_step_applied()
        return torch.as_tensor(float("nan") if norm is None else norm), skipped

    def forget(self) -> None:
        """Not possible: from stage 2 on they lie in DeepSpeed's own shards. What is rehearsed weighs nothing."""

    def weights(self) -> dict[str, Tensor]:
        if self.plan.settings.form_options["stage"] == 3:
            return self.accelerator.get_state_dict(self.model) or {}
        return self.bare.state_dict() if self.accelerator.is_main_process else {}

    def whole_weight(self, tensor: Tensor) -> Tensor:
        return zero_states.whole_weight(tensor)

    def put_weight(self, tensor: Tensor, whole: Tensor) -> None:
        zero_states.put_weight(tensor, whole, is_main=self.accelerator.is_main_process)

    def whole_state(self, parameter: Parameter) -> State:
        return zero_states.whole_state(self._sharded(), parameter)

    def put_states(self, parameters: Mapping[str, Parameter], read: Callable[[str], State]) -> None:
        zero_states.put_states(self._sharded(), parameters, read)

    def _sharded(self) -> Any:
        """DeepSpeed's optimizer; CheckpointError where its states are not in any memory."""
        if self.plan.settings.form_options["nvme"] is not None:
            problem = "states that are offloaded to NVMe cannot be saved or loaded yet"
            raise CheckpointError("training state", [f"{problem}; leave strategies.zero.nvme out"])
        return self.engine.optimizer

    @property
    def scaler(self) -> GradScaler | None:
        scaler: GradScaler | None = self.engine.optimizer.torch_autocast_gradscaler
        return scaler
