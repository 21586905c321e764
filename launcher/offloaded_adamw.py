"""torch's own fused AdamW with its states in host memory; they visit the card a slice at a time.

Why the states travel and the update stays on the card:

- It is the same AdamW. Slices go through the kernel that plain fused AdamW calls, so that on a CPU every bit is equal
  (tests/test_offloaded_adamw.py) and checkpoints move either way. An update on the host would be another program.
- DeepSpeed's CPUAdam compiles itself with g++ at first use, for minutes; torchao's offload is one more dependency.
- An update on the host needs weights and gradients there too: 16 bytes of host memory a parameter in float32, not 8.

The price is traffic: 16 bytes a parameter and update (both states, there and back) where gradients and weights would be
8. It is paid once an update, however many micro-batches that has, and the two directions overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import AdamW

from launcher.host import on_host
from launcher.units import MIB

SLOTS = 2  # one fills while the other empties
CHUNK_BYTES = 32 * MIB  # of states in one slot: some 3 ms on a PCIe 3.0 x16 link, far above the cost of starting a copy
STATES = ("exp_avg", "exp_avg_sq")
# Elements: a whole number of any kernel's vectors, so that only a tensor's own end meets the code for the rest, which
# rounds otherwise (pieces of 1,001 differ from the whole in the last bit, torch 2.13 on a CPU); 512 bytes in float32,
# as CUDA's allocator aligns.
ALIGNMENT = 128


class Piece(NamedTuple):
    """A stretch of one parameter, flat: views of it, of its gradient and of its states on the host."""

    step: Tensor
    parameter: Tensor
    gradient: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor

    @property
    def room(self) -> int:
        """Elements that it takes of a slot's row."""
        return -(-self.parameter.numel() // ALIGNMENT) * ALIGNMENT


Chunk = list[Piece]


class OffloadedAdamW(AdamW):
    """Of contiguous parameters of one dtype on one device. `step` stays there, 4 bytes a tensor, as in fused AdamW."""

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, fused=True)
        # A step that overflowed is left out by the scaler, before any state has travelled for nothing.
        self._step_supports_amp_scaling = False
        self.chunk_bytes = chunk_bytes

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # nothing here trains with a closure
        """Returns when all states are back: whoever reads them next need not wait."""
        assert closure is None
        work = [(group, chunk) for group in self.param_groups for chunk in _chunks(self._pieces(group), self._room())]
        if not work:
            return
        torch._foreach_add_([self.state[p]["step"] for p in self._parameters() if p.grad is not None], 1)
        first = work[0][1][0].parameter
        room = max(sum(piece.room for piece in chunk) for _, chunk in work)
        slots = [first.new_empty(len(STATES), room) for _ in work[:SLOTS]]
        streams = [_stream_after_current(first.device) for _ in slots]
        # Up, update and down of one slot are in order on its own stream; the other slot's go on meanwhile.
        for number, (group, chunk) in enumerate(work):
            with torch.cuda.stream(streams[number % SLOTS]) if first.is_cuda else nullcontext():
                _update(group, chunk, slots[number % SLOTS])
        for stream in streams:
            if stream is not None:
                stream.synchronize()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Of this class or of torch's AdamW. torch would move all states to the card: these never go there."""
        states = state_dict["state"]
        kept = {number: {k: v for k, v in state.items() if k not in STATES} for number, state in states.items()}
        # By "fused" torch decides where `step` belongs, and what AdamW saved may have run without.
        groups = [group | {"fused": True} for group in state_dict["param_groups"]]
        super().load_state_dict({"state": kept, "param_groups": groups})
        numbers = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        for number, parameter in zip(numbers, self._parameters(), strict=True):
            if number in states:
                hosted = {name: _zeros_on_host(parameter) for name in STATES}
                self.state[parameter].update(hosted)
                with on_host():
                    for name in STATES:
                        hosted[name].copy_(states[number][name])

    def _parameters(self) -> Iterator[Tensor]:
        return chain.from_iterable(group["params"] for group in self.param_groups)

    def _room(self) -> int:
        """Elements of a slot's row in float32."""
        return max(ALIGNMENT, self.chunk_bytes // (len(STATES) * 4) // ALIGNMENT * ALIGNMENT)

    def _pieces(self, group: dict[str, Any]) -> Iterator[Piece]:
        """Of what has a gradient; what is larger than a slot is cut."""
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
                state.update({name: _zeros_on_host(parameter) for name in STATES})
            whole = parameter.detach(), parameter.grad, *(state[name] for name in STATES)
            flat = [tensor.view(-1) for tensor in whole]
            if parameter.numel() <= self._room():
                yield Piece(state["step"], *flat)
                continue
            for parts in zip(*(tensor.split(self._room()) for tensor in flat), strict=True):
                yield Piece(state["step"], *parts)


def _zeros_on_host(parameter: Tensor) -> Tensor:
    """Pinned beside a card: only then do copies run by themselves.

    torch rounds each pinned size up to a power of two: BERT-large takes 2.70 GB for 2.68, BERT-base 1.49 for 0.88.
    """
    with on_host():
        return torch.zeros(parameter.shape, dtype=parameter.dtype, device="cpu", pin_memory=parameter.is_cuda)


def _stream_after_current(device: torch.device) -> torch.cuda.Stream | None:
    """Starts when gradients are there and the slots' memory is free; None where there are no streams."""
    if device.type != "cuda":
        return None
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    return stream


def _chunks(pieces: Iterable[Piece], room: int) -> Iterator[Chunk]:
    """Neighbours that fit into one slot together."""
    chunk, used = Chunk(), 0
    for piece in pieces:
        if used + piece.room > room and chunk:
            yield chunk
            chunk, used = Chunk(), 0
        chunk.append(piece)
        used += piece.room
    if chunk:
        yield chunk


def _update(group: dict[str, Any], chunk: Chunk, slot: Tensor) -> None:
    """States up, the update, states down. `slot` has a row for each of the two."""
    sizes = [piece.room for piece in chunk]
    averages, squares = (
        [part[: piece.parameter.numel()] for part, piece in zip(row[: sum(sizes)].split(sizes), chunk, strict=True)]
        for row in slot
    )
    visitors = [*averages, *squares]
    homes = [*(piece.exp_avg for piece in chunk), *(piece.exp_avg_sq for piece in chunk)]
    _transfer(visitors, homes)
    torch._fused_adamw_(
        [piece.parameter for piece in chunk],
        [piece.gradient for piece in chunk],
        averages,
        squares,
        [],
        [piece.step for piece in chunk],
        lr=group["lr"],
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        amsgrad=False,
        maximize=False,
    )
    _transfer(homes, visitors)


def _transfer(targets: list[Tensor], sources: list[Tensor]) -> None:
    with on_host():
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source, non_blocking=True)
