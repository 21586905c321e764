"""Sizes of parameters whether they are here whole or in shards."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def shape_of(parameter: Tensor) -> tuple[int, ...]:
    """Of the whole: ZeRO-3 leaves an empty tensor here and notes the shape on it; FSDP's tensors know theirs."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


def elements(parameter: Tensor) -> int:
    """How many it has as a whole."""
    return math.prod(shape_of(parameter))


def shard_of(parameter: Tensor) -> Tensor:
    """What this process holds of it between its uses."""
    whole_or_none: Tensor = getattr(parameter, "ds_tensor", parameter)
    held: Tensor = getattr(whole_or_none, "_local_tensor", whole_or_none)
    return held
