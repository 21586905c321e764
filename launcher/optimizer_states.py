"""What an optimizer remembers of a parameter, and where that may be carried to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    # Of one parameter, by the optimizer's own names.
    State = dict[str, Tensor | int | float]

# One number for a whole tensor; everything else of the optimizers below has the parameter's shape.
COUNTERS = ("step",)
# Whose states mean the same for every stretch of a parameter: they can be cut, joined and carried to any form.
ELEMENTWISE = ("torch.optim.adamw:AdamW", "torch.optim.sgd:SGD")


def kind_of(optimizer: Optimizer) -> str:
    """A dotted name: the class whose states these are."""
    from torch.optim import AdamW

    from launcher.offloaded_adamw import OffloadedAdamW

    cls = AdamW if isinstance(optimizer, OffloadedAdamW) else type(optimizer)
    return f"{cls.__module__}:{cls.__qualname__}"
