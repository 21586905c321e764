"""Arithmetic of matrix operators: torch's own formulas, and those that it lacks."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count


def count_flops(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Of one operator as it was called; 0 for those without a matrix, which wait for memory rather than arithmetic."""
    packet = func.overloadpacket
    if packet in _MISSING:
        return _MISSING[packet](*args)
    if packet in flop_registry:
        return int(flop_registry[packet](*args, **kwargs, out_val=result))
    return 0


def _attention(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> int:
    return int(sdpa_flop_count(query.shape, key.shape, value.shape))  # type: ignore[no-untyped-call]


def _attention_backward(gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any) -> int:
    shapes = gradient.shape, query.shape, key.shape, value.shape
    return int(sdpa_backward_flop_count(*shapes))  # type: ignore[no-untyped-call]


def _grouped(first: Tensor, second: Tensor, *_: Any) -> int:
    """Experts: three dimensions by two share out the second's columns, else every row of the first meets one matrix."""
    rows = first.shape[1:] if second.ndim < first.ndim else first.shape
    return 2 * prod(rows) * second.shape[-1]


_aten = torch.ops.aten
_MISSING: dict[Any, Callable[..., int]] = {
    _aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    _aten._grouped_mm: _grouped,
}
