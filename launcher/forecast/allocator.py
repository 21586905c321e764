"""CUDA's caching allocator, replayed: what a run reserves from the driver to serve what it allocates.

Rules and sizes as in torch's c10/cuda/CUDACachingAllocator.cpp with its default settings.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field

from launcher.forecast.tracker import Event
from launcher.units import MIB

ROUNDING = 512  # kMinBlockSize
SMALL = 1 * MIB  # kSmallSize: up to here a request is served from segments of SMALL_SEGMENT
SMALL_SEGMENT = 2 * MIB  # kSmallBuffer
LARGE_SEGMENT = 20 * MIB  # kLargeBuffer: what requests below LARGE take
LARGE = 10 * MIB  # kMinLargeAlloc: from here on a segment of its own size, rounded to LARGE_ROUNDING
LARGE_ROUNDING = 2 * MIB  # kRoundLarge


@dataclass(frozen=True)
class Reserved:
    """Bytes at the fullest moments; `allocated` counts whole blocks."""

    allocated: int
    reserved: int


@dataclass
class _Block:
    segment: int
    offset: int
    size: int
    is_free: bool = True


@dataclass
class _Pool:
    """Free blocks by size, then segment, then offset: best fit takes the first that is large enough."""

    is_small: bool
    free: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, block: _Block) -> None:
        bisect.insort(self.free, (block.size, block.segment, block.offset))

    def remove(self, block: _Block) -> None:
        del self.free[bisect.bisect_left(self.free, (block.size, block.segment, block.offset))]

    def best_fit(self, size: int) -> tuple[int, int] | None:
        """(segment, offset) of the smallest free block that holds `size`."""
        place = bisect.bisect_left(self.free, (size, -1, -1))
        return self.free[place][1:] if place < len(self.free) else None

    def keeps_rest(self, rest: int) -> bool:
        """Whether what is left of a block is worth a block of its own."""
        return rest >= ROUNDING if self.is_small else rest > SMALL

    def segment_size(self, size: int) -> int:
        if self.is_small:
            return SMALL_SEGMENT
        return LARGE_SEGMENT if size < LARGE else -(-size // LARGE_ROUNDING) * LARGE_ROUNDING


class CachingAllocator:
    """Best fit within two pools; blocks split and join again; segments are never given back."""

    def __init__(self) -> None:
        self.pools = _Pool(True), _Pool(False)
        self.segments: list[dict[int, _Block]] = []
        self.held: dict[int, tuple[_Pool, _Block]] = {}
        self.reserved = self.allocated = 0

    def allocate(self, number: int, size: int) -> None:
        """`number` names the request; `size` in bytes, above zero."""
        size = -(-size // ROUNDING) * ROUNDING
        pool = self.pools[0] if size <= SMALL else self.pools[1]
        place = pool.best_fit(size)
        if place is None:
            block = self._new_segment(pool, size)
        else:
            block = self.segments[place[0]][place[1]]
            pool.remove(block)
        rest = block.size - size
        if pool.keeps_rest(rest):
            block.size = size
            self._put(pool, _Block(block.segment, block.offset + size, rest))
        block.is_free = False
        self.held[number] = pool, block
        self.allocated += block.size

    def release(self, number: int) -> None:
        """Joins the block with its free neighbours."""
        pool, block = self.held.pop(number)
        self.allocated -= block.size
        blocks = self.segments[block.segment]
        after = blocks.get(block.offset + block.size)
        if after is not None and after.is_free:
            pool.remove(blocks.pop(after.offset))
            block.size += after.size
        before = next((b for b in blocks.values() if b.offset + b.size == block.offset), None)
        if before is not None and before.is_free:
            pool.remove(before)
            before.size += blocks.pop(block.offset).size
            block = before
        block.is_free = True
        pool.add(block)

    def _new_segment(self, pool: _Pool, size: int) -> _Block:
        block = _Block(len(self.segments), 0, pool.segment_size(size))
        self.segments.append({0: block})
        self.reserved += block.size
        return block

    def _put(self, pool: _Pool, block: _Block) -> None:
        self.segments[block.segment][block.offset] = block
        pool.add(block)


def replay(events: Iterable[Event]) -> Reserved:
    """The peaks of a tracked run on a card that starts empty."""
    allocator = CachingAllocator()
    most_allocated = most_reserved = 0
    for event in events:
        if event.size > 0:
            allocator.allocate(event.storage, event.size)
        elif event.size < 0:
            allocator.release(event.storage)
        most_allocated = max(most_allocated, allocator.allocated)
        most_reserved = max(most_reserved, allocator.reserved)
    return Reserved(most_allocated, most_reserved)
