"""The caching allocator's rules, one by one, and what no sequence of requests may break."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.forecast.allocator import CachingAllocator, replay
from launcher.forecast.tracker import Event
from launcher.units import MIB


def reserved_for(*sizes):
    return replay(Event(number, size, "forward") for number, size in enumerate(sizes)).reserved


def test_segments_have_the_sizes_of_the_pools():
    assert reserved_for(1) == 2 * MIB
    assert reserved_for(MIB) == 2 * MIB
    assert reserved_for(MIB + 1) == 20 * MIB
    assert reserved_for(10 * MIB - 512) == 20 * MIB
    assert reserved_for(10 * MIB) == 10 * MIB
    assert reserved_for(11 * MIB) == 12 * MIB


def test_requests_share_a_segment_while_they_fit():
    assert reserved_for(*[MIB] * 2) == 2 * MIB
    assert reserved_for(*[MIB] * 3) == 4 * MIB
    assert reserved_for(*[5 * MIB] * 4) == 20 * MIB


def test_a_released_block_is_used_again_and_neighbours_join():
    allocator = CachingAllocator()
    for number in range(4):
        allocator.allocate(number, 5 * MIB)
    for number in (1, 3, 2):
        allocator.release(number)
    allocator.allocate(9, 9 * MIB)
    assert allocator.reserved == 20 * MIB
    assert allocator.allocated == 14 * MIB


def test_a_large_block_is_not_split_for_a_rest_of_a_mebibyte():
    allocator = CachingAllocator()
    allocator.allocate(0, 20 * MIB)
    allocator.release(0)
    allocator.allocate(1, 19 * MIB)
    assert allocator.allocated == 20 * MIB


sizes = st.integers(1, 40 * MIB)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(sizes, st.integers(-50, -1)), max_size=120))
def test_blocks_cover_their_segments_and_free_neighbours_are_joined(actions):
    allocator, live = CachingAllocator(), []
    for number, action in enumerate(actions):
        if action > 0:
            allocator.allocate(number, action)
            live.append(number)
        elif live:
            allocator.release(live.pop(action % len(live)))
    free = []
    for segment in allocator.segments:
        blocks = [segment[offset] for offset in sorted(segment)]
        assert [b.offset for b in blocks] == [sum(x.size for x in blocks[:i]) for i in range(len(blocks))]
        assert not any(a.is_free and b.is_free for a, b in pairwise(blocks))
        free += [(b.size, b.segment, b.offset) for b in blocks if b.is_free]
    assert sorted(allocator.pools[0].free + allocator.pools[1].free) == sorted(free)
    assert allocator.reserved - allocator.allocated == sum(size for size, _, _ in free)
