"""Follows every tensor storage from birth to death: what it is for, when it lives, how large it is."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from launcher.errors import ForecastError
from launcher.forecast.result import HOST, TEMPORARIES
from launcher.host import is_on_host
from launcher.shards import shard_of

# The autograd engine asks it of fake tensors, more often than it runs operators.
DEVICE_OF = torch.ops.prim.device.default
# The autograd engine's sum of two gradients of one tensor: in place where nobody else holds the first one
# (can_accumulate_inplace in torch/csrc/autograd/input_buffer.cpp).
SUM, SUM_IN_PLACE = "autograd sum", "autograd sum in place"
# Who holds a tensor that nobody else holds, while the engine calls the sum of it: its input buffer, the dispatcher's
# arguments and their Python forms; and its storage: the tensor, and the object that we ask (torch 2.13.0). Another mode
# that is called before this one would hold them too.
TENSOR_HOLDERS, STORAGE_HOLDERS = 4, 2
# Real tensors are changed in place here; under a dispatch mode autograd makes new ones instead
# (isTensorSubclassLike in torch/csrc/autograd).
IN_PLACE_FOR_REAL = {"aten.scatter_add.default", SUM_IN_PLACE}
# Kernels with buffers of their own that no operator shows: a CPU's convolution by oneDNN took 5 % of SqueezeBERT's peak
# (2026-11-30, torch 2.13.0), a card's by cuDNN takes a workspace.
HIDDEN_BUFFERS = {"aten.convolution.default"}


@dataclass
class Storage:
    """`size` in bytes; `operator` and `phase` are where it was born; `row` says what it is for."""

    size: int
    operator: str
    phase: str
    row: str


@dataclass(frozen=True)
class Event:
    """One storage is born (`size` above zero) or dies, in a phase."""

    storage: int
    size: int
    phase: str


class Tracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees what operators return while it is entered, and what it is told of; forgets nothing."""

    def __init__(self, buffers_of: Callable[..., int] | None = None) -> None:
        """`buffers_of` says what a kernel allocates for itself: bytes by (operator, args, kwargs, result)."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.buffers_of = buffers_of
        self.phase = "load"
        self.is_paused = False
        self.storages: list[Storage] = []
        self.events: list[Event] = []
        self._live: dict[int, int] = {}

    def name(self, tensors: Iterable[torch.Tensor], row: str) -> None:
        """Says what these are for; those not seen before live from now on. What is on the host stays there."""
        for tensor in tensors:
            storage = self.storages[self._number(shard_of(tensor), "given")]
            if storage.row != HOST:
                storage.row = row

    def name_survivors(self, phase: str, row: str) -> None:
        """What was born in this phase, lives now and has no name yet."""
        for number in self._live.values():
            storage = self.storages[number]
            if storage.phase == phase and storage.row == TEMPORARIES:
                storage.row = row

    def _number(self, tensor: torch.Tensor, operator: str) -> int:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._live:
            self._live[key] = len(self.storages)
            self._event(len(self.storages), storage.nbytes())
            row = HOST if is_on_host() else TEMPORARIES
            self.storages.append(Storage(storage.nbytes(), operator, self.phase, row))
            weakref.finalize(storage, self._died, key)
        return self._live[key]

    def _event(self, number: int, size: int) -> None:
        self.events.append(Event(number, size, self.phase))

    def _died(self, key: int) -> None:
        number = self._live.pop(key)
        self._event(number, -self.storages[number].size)

    def resized(self, storage: torch.UntypedStorage, size: int) -> None:
        """FSDP gives gathered weights back, and takes room for them again, by resizing: one dies, another is born."""
        key = storage._cdata
        if key not in self._live or self.storages[self._live[key]].size == size:
            return
        old = self.storages[self._live[key]]
        self._event(self._live[key], -old.size)
        self._live[key] = len(self.storages)
        self._event(len(self.storages), size)
        self.storages.append(Storage(size, old.operator, self.phase, old.row))

    def __enter__(self) -> Tracker:
        self._resize = torch.UntypedStorage.resize_
        resize = self._resize

        def followed(storage: torch.UntypedStorage, size: int) -> Any:
            result = resize(storage, size)
            self.resized(storage, int(size))
            return result

        torch.UntypedStorage.resize_ = followed  # type: ignore[method-assign, assignment]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def real_events(self) -> list[Event]:
        """The events as real tensors would make them: what is changed in place dies before it is born anew."""
        events = list(self.events)
        for place, (birth, death) in enumerate(pairwise(self.events)):
            operator = self.storages[birth.storage].operator
            if birth.size > 0 and operator in IN_PLACE_FOR_REAL and death.size == -birth.size:
                events[place], events[place + 1] = death, birth
        return events

    def _operator(self, func: Any, args: Any) -> str:
        name = str(func)
        if name != "aten.add.Tensor" or self.phase != "backward" or torch.is_grad_enabled():
            return name
        storage = args[0].untyped_storage()
        holders = args[0]._use_count(), torch._C._storage_Use_Count(storage._cdata)
        return SUM_IN_PLACE if holders == (TENSOR_HOLDERS, STORAGE_HOLDERS) else SUM

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and torch's guard against that costs more than what it guards."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if DTensor in types:
            return NotImplemented  # it then calls the operators on its shards, which come here
        if self.is_paused:
            return func(*args, **(kwargs or {}))
        if func is DEVICE_OF and isinstance(args[0], FakeTensor):
            return args[0].fake_device  # as FakeTensorMode would answer, at a tenth of the price
        operator = self._operator(func, args)
        if operator in HIDDEN_BUFFERS:
            raise ForecastError("forecast", [f"{operator} takes memory that cannot be followed"])
        result = func(*args, **(kwargs or {}))
        buffers = self.buffers_of(func, args, kwargs or {}, result) if self.buffers_of is not None else 0
        # What is changed in place for real has its result before it has its buffers.
        is_in_place = operator in IN_PLACE_FOR_REAL
        if buffers and is_in_place:
            self._passing(buffers, operator)
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._number(leaf, operator)
        if buffers and not is_in_place:
            self._passing(buffers, operator)
        return result

    def _passing(self, size: int, operator: str) -> None:
        """Bytes that live while the operator runs."""
        self.storages.append(Storage(size, f"buffers of {operator}", self.phase, TEMPORARIES))
        self._event(len(self.storages) - 1, size)
        self._event(len(self.storages) - 1, -size)
