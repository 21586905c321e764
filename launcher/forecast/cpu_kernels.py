"""Bytes that a CPU's kernels allocate for themselves while they run: no operator returns them.

Most follow from the kernels' sources, which are named by their paths in torch's. In half precision oneDNN repacks what
it multiplies by plans of its own, one for each kind of processor; those kernels are asked, on the processor at hand.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

aten = torch.ops.aten
Rule = Callable[[Any, Any], int]

# Queries that a thread looks at together, by the shortest length that takes so many, and keys
# (native/cpu/FlashAttentionKernel.cpp).
QUERY_BLOCKS = {768: 256, 192: 64, 0: 32}
KEY_BLOCK = 512


def buffers_of(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    """What this call holds at its fullest moment besides its arguments and its result, with torch's threads here."""
    if func.overloadpacket in _ASKED and any(_is_half(leaf) for leaf in args if isinstance(leaf, Tensor)):
        leaves, shape = tree_flatten((args, kwargs))
        looks = tuple(_Look.of(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves)
        return _asked(func, looks, shape, torch.get_num_threads())
    rule = _RULES.get(func.overloadpacket)
    return rule(args, result) if rule is not None else 0


def _is_half(tensor: Tensor) -> bool:
    return tensor.dtype in (torch.bfloat16, torch.float16)


def _bytes(count: int, dtype: torch.dtype) -> int:
    return count * dtype.itemsize


def _promotion(args: Any, result: Any) -> int:
    """A copy of each input that is not of the common type (compute_types in TensorIterator.cpp)."""
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    common = functools.reduce(torch.promote_types, (tensor.dtype for tensor in tensors if tensor.ndim), result.dtype)
    if result.dtype == torch.bool:
        common = torch.result_type(*args[:2])
    # What is changed in place and is of another type is copied on its way back as well.
    written = [result] if result.dtype not in (common, torch.bool) else []
    return sum(_bytes(tensor.numel(), common) for tensor in [*tensors, *written] if tensor.dtype != common)


def _reduction(args: Any, result: Any) -> int:
    """A copy in the result's type (make_reduction in native/ReduceOpsUtils.h)."""
    return _bytes(args[0].numel(), result.dtype) if args[0].dtype != result.dtype else 0


def _scatter(args: Any, result: Any) -> int:
    """Half precision goes through a float32 copy of the result (native/cpu/ScatterGatherKernel.cpp)."""
    return _bytes(result.numel(), torch.float32) if _is_half(result) else 0


def _index_add(args: Any, result: Any) -> int:
    """By scatter_add along the last dimension (index_add_cpu_out in native/TensorAdvancedIndexing.cpp)."""
    return _scatter(args, result) if args[1] % args[0].ndim == args[0].ndim - 1 else 0


def _mean(args: Any, result: Any) -> int:
    """Half precision is summed as a copy in float32 (mean in native/ReduceOps.cpp)."""
    return _bytes(args[0].numel() + result.numel(), torch.float32) if _is_half(args[0]) else 0


def _layer_norm_backward(args: Any, result: Any) -> int:
    """Each thread's sums over rows, and copies of what is not contiguous (native/cpu/layer_norm_kernel.cpp)."""
    gradient, tensor, shape = args[:3]
    sums = 2 * torch.get_num_threads() * _bytes(math.prod(shape), tensor.dtype)
    return sums + sum(_bytes(t.numel(), t.dtype) for t in (gradient, tensor) if not t.is_contiguous())


def _attention(args: Any, result: Any) -> int:
    """Each thread's scores, their maxima and sums, and the result of a block of queries."""
    queries, keys = _block(*args[:2])
    return torch.get_num_threads() * _bytes(queries * (keys + 2 + args[0].size(-1)), args[0].dtype)


def _attention_backward(args: Any, result: Any) -> int:
    """Each thread's scores, their gradients and a sum for each query; a gradient that is not (batch, length, heads)."""
    gradient, query, key = args[:3]
    queries, keys = _block(query, key)
    copied = 0 if gradient.transpose(1, 2).is_contiguous() else gradient.numel()
    return _bytes(torch.get_num_threads() * queries * (2 * keys + 1) + copied, query.dtype)


def _block(query: Tensor, key: Tensor) -> tuple[int, int]:
    """How many queries and keys a thread looks at together."""
    length = query.size(-2)
    block = next(size for shortest, size in QUERY_BLOCKS.items() if length >= shortest)
    return min(block, length), min(KEY_BLOCK, key.size(-2))


@dataclass(frozen=True)
class _Look:
    """What a kernel's plan depends on."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> _Look:
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype)

    def zeros(self) -> Tensor:
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return torch.zeros(last + 1, dtype=self.dtype).as_strided(self.shape, self.strides)


@functools.cache
def _asked(func: Any, looks: tuple[Any, ...], shape: Any, threads: int) -> int:
    """The allocator's events while one such call is computed for real, on zeros."""
    from torch.profiler import ProfilerActivity, profile

    with _disable_current_modes():
        leaves = [leaf.zeros() if isinstance(leaf, _Look) else leaf for leaf in looks]
        args, kwargs = tree_unflatten(leaves, shape)
        with profile(profile_memory=True, activities=[ProfilerActivity.CPU]) as recorded:
            result = func(*args, **kwargs)
    results: Any = recorded.profiler.kineto_results if recorded.profiler is not None else None
    held = most = 0
    for event in sorted(results.events(), key=lambda event: event.start_ns()):
        held += event.nbytes() if event.name() == "[memory]" else 0
        most = max(most, held)
    return most - sum(leaf.untyped_storage().nbytes() for leaf in tree_leaves(result) if isinstance(leaf, Tensor))


_ATTENTION = aten._scaled_dot_product_flash_attention_for_cpu
_ATTENTION_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward
_ASKED = {aten.mm, aten.addmm, aten.bmm, aten.baddbmm, _ATTENTION, _ATTENTION_BACKWARD}
_ARITHMETIC = (aten.add, aten.sub, aten.rsub, aten.mul, aten.div, aten.pow, aten.maximum, aten.minimum)
_IN_PLACE = (aten.add_, aten.sub_, aten.mul_, aten.div_)
_COMPARISONS = (aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge)
_RULES: dict[Any, Rule] = {
    **dict.fromkeys((*_ARITHMETIC, *_IN_PLACE, *_COMPARISONS), _promotion),
    **dict.fromkeys((aten.sum, aten.cumsum), _reduction),
    aten.mean: _mean,
    **dict.fromkeys((aten.gather, aten.scatter_add), _scatter),
    aten.index_add: _index_add,
    aten.native_layer_norm_backward: _layer_norm_backward,
    _ATTENTION: _attention,
    _ATTENTION_BACKWARD: _attention_backward,
}
