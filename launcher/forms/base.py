"""What a form answers: who holds what of the model, how gradients are joined, how the step is taken."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from launcher.errors import LaunchError

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import Tensor, nn
    from torch.amp import GradScaler
    from torch.nn import Parameter
    from torch.optim import Optimizer
    from transformers import PreTrainedModel

    from launcher.optimizer_states import State
    from launcher.plan import Plan
    from launcher.settings import Precision

    MakeOptimizer = Callable[[PreTrainedModel], Optimizer]

CPU_PROCESSES = "to train on CPUs start it with `launcher run RECIPE --processes N` or accelerate_configs/cpu.yaml"


class Form(ABC):
    """Every process calls every method, in the same order: there is communication in most of them.

    `start` comes first, `wrap` second; then `accelerator`, `model` and `optimizer` are there, and
    `plain_optimizer`, whose rate schedules change.
    """

    key: ClassVar[str]
    # Whether each process holds the model's weights whole, as the forward of a bare model needs them.
    is_whole: ClassVar[bool] = False

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.accelerator: Accelerator
        self.model: nn.Module
        self.optimizer: Optimizer
        self.plain_optimizer: Optimizer

    def start(self, precision: Precision) -> Accelerator:
        """The processes meet."""
        self.accelerator = self._start(precision)
        return self.accelerator

    @abstractmethod
    def _start(self, precision: Precision) -> Accelerator: ...

    @abstractmethod
    def wrap(self, model: PreTrainedModel, make_optimizer: MakeOptimizer, *, has_unused: bool) -> None:
        """Joins the processes' models. LaunchError where they would be trained apart, or by another optimizer."""

    def logits(self, inputs: Mapping[str, Any]) -> Tensor:
        """Of one micro-batch, in the plan's precision: (examples, outputs), float32."""
        logits: Tensor = self.model(**inputs).logits
        return logits.float()

    def accumulating(self) -> AbstractContextManager[None]:
        """Around a micro-batch that is not the last of its update: gradients stay here where that saves time."""
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        """`loss` is this process's part of the update's mean; gradients are summed over the processes."""
        # Processes' gradients are averaged by whoever joins them, so each is scaled up by their number.
        self.accelerator.backward(loss * self.accelerator.num_processes)

    @abstractmethod
    def step(self) -> tuple[Tensor, bool]:
        """Clips and steps by the gradients that are there, which are used up.

        Their norm over all processes before it was clipped, shape (); and whether an overflow left the step out.
        """

    def forget(self) -> None:
        """Drops the gradients that are there."""
        self.optimizer.zero_grad()

    def records(self) -> dict[str, object]:
        """What belongs into the run folder, by file name; known once it has wrapped."""
        return {}

    @property
    def bare(self) -> PreTrainedModel:
        """The model as it was before it was wrapped."""
        model: PreTrainedModel = self.accelerator.unwrap_model(self.model)
        return model

    @abstractmethod
    def weights(self) -> dict[str, Tensor]:
        """All of the model's, whole, by name, on the host; on other processes than the main one nothing."""

    # What is trained, tensor by tensor: how it leaves this form whole, and how it comes into it from the host. A tensor
    # is a parameter or a buffer of `bare`.

    @abstractmethod
    def whole_weight(self, tensor: Tensor) -> Tensor:
        """On the main process; what the others get may be anything."""

    @abstractmethod
    def put_weight(self, tensor: Tensor, whole: Tensor) -> None:
        """`whole` is the same on all processes."""

    @abstractmethod
    def whole_state(self, parameter: Parameter) -> State:
        """What the optimizer remembers of it, on the main process; empty before its first step."""

    @abstractmethod
    def put_states(self, parameters: Mapping[str, Parameter], read: Callable[[str], State]) -> None:
        """Of an optimizer without any step; those that are not in `parameters` have none.

        `read` gives the state for a name, the same on all processes. CheckpointError where this form cannot hold it.
        """

    @property
    def scaler(self) -> GradScaler | None:
        """What scales losses in fp16."""
        scaler: GradScaler | None = self.accelerator.scaler
        return scaler


def apart(accelerator: Accelerator) -> LaunchError:
    """What is said where each process would train a model of its own."""
    form = str(accelerator.distributed_type).rpartition(".")[2]
    problem = f"{accelerator.num_processes} processes would each train a model of their own: "
    return LaunchError("launch", [f"{problem}Accelerate's form is {form}, which joins no gradients; {CPU_PROCESSES}"])
