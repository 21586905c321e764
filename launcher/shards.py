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
