"""A card that is not there: tensors of the CPU are counted as they live, and more than it holds is out of memory."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from launcher.units import format_bytes


class SimulatedCard(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what operators return while it is entered, and what it is told of. Bytes, of storages."""

    def __init__(self, memory: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.memory = memory
        self.held = self.peak = 0
        self._live: dict[int, int] = {}
        # Under a dispatch mode autograd sums gradients, and scatters them, into new tensors where it would otherwise
        # change one in place (isTensorSubclassLike in torch/csrc/autograd): what they replace dies right after.
        self._sums: set[int] = set()

    def hold(self, tensors: Iterable[torch.Tensor]) -> None:
        """Counts these too: what was made before it was entered."""
        for tensor in tensors:
            self._count(tensor, is_checked=True)

    def reset_peak(self) -> None:
        self.peak = self.held

    def _count(self, tensor: torch.Tensor, *, is_checked: bool) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._live:
            return
        size = storage.nbytes()
        if is_checked and self.held + size > self.memory:
            raise torch.OutOfMemoryError(
                f"simulated card of {format_bytes(self.memory)}: {format_bytes(size)} asked for, "
                f"{format_bytes(self.held)} held"
            )
        self._live[key] = size
        self.held += size
        if is_checked:
            self.peak = max(self.peak, self.held)
        weakref.finalize(storage, self._died, key)

    def _died(self, key: int) -> None:
        self.held -= self._live.pop(key)
        self._sums.discard(key)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        is_backward = torch._C._current_graph_task_id() != -1
        is_sum = func is torch.ops.aten.add.Tensor and is_backward
        is_again = is_sum and args[0].untyped_storage()._cdata in self._sums
        is_replacing = is_again or (func is torch.ops.aten.scatter_add.default and is_backward)
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._count(leaf, is_checked=not is_replacing)
        if is_sum:
            self._sums.add(result.untyped_storage()._cdata)
        return result
