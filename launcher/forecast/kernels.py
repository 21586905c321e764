"""What one operator call costs as eager torch runs it: arithmetic, bytes, launches."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from launcher.forecast.flops import count_flops

HALF = (torch.float16, torch.bfloat16)
OVERWRITES = {"zero_", "fill_", "copy_"}  # what they change is not read
LOOKS_UP = {"embedding", "index", "index_select", "gather"}  # reads of its table what it returns, no more
COPIES = {"copy_", "_to_copy", "clone"}
# multi_tensor_apply (ATen/native/cuda/MultiTensorApply.cuh): elements of a block's chunk, blocks of a launch, and
# tensors of a launch by the number of lists that a call walks through together.
CHUNK, MOST_BLOCKS, MOST_TENSORS = 65536, 320, (110, 64, 48, 36, 30)
MULTI_TENSOR = ("_foreach_", "_fused_", "_amp_foreach_")


class Kernel(NamedTuple):
    """`flops` of matrices, of half precision where `is_half`; `moved` bytes, read and written together."""

    is_half: bool
    flops: int
    moved: int
    launches: int


def kernel_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Kernel | None:
    """None where nothing runs: a view, a question, or memory that is only set aside."""
    if func.is_view or func.namespace == "prim":  # the most of all calls, so without a look at their tensors
        return None
    name, given = func.overloadpacket.__name__, _tensors((args, kwargs))
    written = _written(func, args, kwargs, given, result)
    if not written or "empty" in name or torch.Tag.inplace_view in func.tags:
        return None
    flops = count_flops(func, args, kwargs, result)
    is_half = flops > 0 and any(tensor.dtype in HALF for tensor in given)
    size = _size(written)
    return Kernel(is_half, flops, _read(name, given, size) + size, _launches(name, args))


def host_bytes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Of an operator on the host: what a copy sends over the link, and what other work reads and writes there.

    The host's memory is taken to be as fast as the link, which holds to a factor of about two.
    """
    if func.overloadpacket.__name__ in COPIES:
        return _size(_written(func, args, kwargs, _tensors((args, kwargs)), result))
    kernel = kernel_of(func, args, kwargs, result)
    return kernel.moved if kernel is not None else 0


def is_collective(func: Any) -> bool:
    """Whether it talks to other processes."""
    return func.namespace in ("c10d", "_c10d_functional")


def sent_bytes(func: Any, args: tuple[Any, ...], processes: int) -> int:
    """What each process sends in a ring: all but its own part of the whole, twice where it is summed for all.

    Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, 2009.
    """
    whole = max((_size(_tensors((arg,))) for arg in args), default=0)
    ways = 2 if "allreduce" in (name := func.overloadpacket.__name__) or "all_reduce" in name else 1
    return ways * whole * (processes - 1) // processes


def _written(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: list[Tensor], result: Any
) -> list[Tensor]:
    """What the schema says is changed, and what is returned in a storage that was not handed in."""
    changed: list[Tensor] = []
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            changed += _tensors(args[place] if place < len(args) else kwargs.get(argument.name))
    homes = {_home(tensor) for tensor in given}
    return changed + [tensor for tensor in _tensors(result) if _home(tensor) not in homes]


def _read(name: str, given: list[Tensor], written: int) -> int:
    if name.startswith("new_") or name.endswith("_like"):
        return 0  # asks for a shape alone
    if name in OVERWRITES:
        return _size(given[1:])
    if name in LOOKS_UP:
        return min(_size(given[:1]), written) + _size(given[1:])
    return _size(given)


def _launches(name: str, args: tuple[Any, ...]) -> int:
    """One, but for operators on lists: as many as its chunks or its tensors fill, whichever are more."""
    lists = [_tensors(some) for some in args if isinstance(some, list | tuple) and _tensors(some)]
    if not name.startswith(MULTI_TENSOR) or not lists:
        return 1
    blocks = sum(-(-tensor.numel() // CHUNK) for tensor in lists[0])
    tensors = MOST_TENSORS[min(len(lists), len(MOST_TENSORS)) - 1]
    return max(-(-blocks // MOST_BLOCKS), -(-len(lists[0]) // tensors), 1)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _home(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _size(tensors: Iterable[Tensor]) -> int:
    """Bytes of memory; what is expanded is there once, and so is a tensor given twice."""
    distinct = {id(tensor): tensor for tensor in tensors}
    return sum(_elements(tensor) * tensor.element_size() for tensor in distinct.values())


def _elements(tensor: Tensor) -> int:
    return prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
