"""The surface against points of a known one, and limits that no micro-batch passes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.batches import Cutter
from launcher.cutter import CostModel, Limits
from launcher.devices import find_device
from launcher.forecast.kernels import Kernel
from launcher.forecast.measure import Measurement, Point
from launcher.forecast.work import Work
from launcher.padding import Padding
from launcher.planner.surface import Line, Surface, make_surface, sizes
from launcher.strategies.gradient_accumulation import GradientAccumulation

CARD = find_device("RTX 3060")
ABOUT = {"rel": 1e-9}  # the fit is exact but for rounding in float64


def measured(lines, seconds=lambda examples, length: 1e-3, update=700, longest=512):
    """What a run would show whose memory and time follow these functions of examples and length."""
    points = []
    for examples, length in sizes(longest, None):
        peaks = {phase: line(examples, length) for phase, line in lines.items()}
        # A kernel that moves as many bytes as take so long.
        moved = seconds(examples, length) * CARD.bandwidth * 0.8
        points.append(Point(examples, length, peaks, Work({Kernel(False, 0, moved, 0): 1})))
    return Measurement({"weights": 400, "gradients": 300}, update, 5, 75, Work(), tuple(points))


@pytest.mark.parametrize(("base", "one", "two"), [(1e9, 4000.0, 3.0), (0.0, 17.0, 0.0), (5e6, 0.0, 8.0)])
def test_the_memory_of_every_size_is_recovered_from_four(base, one, two):
    def memory(examples, length):
        return base + examples * (one * length + two * length**2)

    surface = make_surface(measured({"backward": memory}), CARD, 1.0)
    for examples, length in [(1, 512), (3, 300), (64, 20), (1000, 512)]:
        floor = memory(1, 128)
        assert surface.peak(examples, length) == pytest.approx(max(700, floor, memory(examples, length)), **ABOUT)


def test_the_peak_is_that_of_the_fullest_phase_or_of_the_update():
    lines = {"forward": lambda n, length: 100 + n * length, "backward": lambda n, length: 2000 + n * length / 2}
    surface = make_surface(measured(lines, update=9000), CARD, 1.0)
    assert surface.peak(1, 128) == 9000
    assert surface.peak(100, 128) == pytest.approx(100 + 100 * 128, **ABOUT)
    with_states = surface.with_states(1000, 9500, 7, 0.5)
    assert with_states.peak(1, 128) == 9500
    assert with_states.peak(100, 128) == pytest.approx(1100 + 100 * 128, **ABOUT)
    assert (with_states.host, with_states.update_seconds) == (7, 0.5)
    # The least that was seen has them too.
    assert surface.with_states(1000, 0, 7, 0.5).peak(1, 8) == pytest.approx(1000 + 2000 + 64, **ABOUT)


@pytest.mark.parametrize("factor", [1.0, 2.5])
def test_the_time_of_every_size_is_recovered(factor):
    def seconds(examples, length):
        return 5e-3 + 2e-7 * examples * length + 3e-10 * examples * length**2

    surface = make_surface(measured({"backward": lambda n, length: 1.0}, seconds), CARD, factor)
    for examples, length in [(1, 512), (7, 100), (200, 512)]:
        predicted = float(surface.cost.time(examples, length)) * surface.seconds_per_token
        assert predicted == pytest.approx(factor * seconds(examples, length), rel=1e-6)


def test_a_time_that_falls_with_length_has_no_negative_part():
    surface = make_surface(measured({"backward": lambda n, length: 1.0}, lambda n, length: n * length**0.5), CARD, 1.0)
    assert surface.cost.overhead >= 0
    assert surface.cost.attention >= 0
    assert surface.seconds_per_token > 0


@pytest.mark.parametrize(("longest", "limit"), [(1, None), (64, None), (65, 512), (300, 512), (512, 512), (500, 500)])
def test_sizes_cover_the_longest_text_and_stay_within_what_the_model_reads(longest, limit):
    found = sizes(longest, limit)
    assert max(length for _, length in found) >= longest
    assert limit is None or max(length for _, length in found) <= limit
    assert len({length for _, length in found[1:]}) == 2  # two lengths tell the square from the rest
    assert sizes(longest + 1, limit) == found or longest in (64, 512, 500)


lines = st.builds(
    Line,
    base=st.floats(0, 1e6),
    per_token=st.floats(0, 1e4),
    per_square=st.floats(0, 1e4),
    floor=st.floats(0, 1e6),
)
surfaces = st.builds(
    Surface,
    lines=st.dictionaries(st.sampled_from(["forward", "backward"]), lines, min_size=1),
    update=st.floats(0, 1e6),
    host=st.just(0),
    cost=st.just(CostModel(10.0, 0.001)),
    seconds_per_token=st.just(1e-6),
    update_seconds=st.just(0.0),
)
texts = st.lists(st.integers(1, 600), min_size=1, max_size=30).map(lambda values: np.array(values, np.int64))


@settings(max_examples=400, deadline=None)
@given(surfaces, texts, st.floats(1e4, 1e9), st.booleans())
def test_no_micro_batch_of_the_limits_takes_more_than_the_room(surface, lengths, room, is_sorted):
    limits = surface.limits(room, lengths)
    if limits is None:
        # Of two phases one may bind for long texts and one for short: no limit in tokens says that exactly.
        assert surface.peak(1, int(lengths.max())) * (1 + 1e-9) > room or len(surface.lines) > 1
        return
    cutter = Cutter(lengths, Padding(), limits, CostModel(10.0, 0.001), is_sorted)
    assert cutter.too_long() is None
    allowed = room * (1 + 1e-9)
    for micro_batch in cutter.cut(np.arange(len(lengths))).micro_batches:
        assert surface.peak(len(micro_batch.examples), cutter.padded_length(micro_batch.examples)) <= allowed
    for length in np.unique(lengths):
        most = limits.most_examples(int(length))
        assert most >= 1
        assert surface.peak(most, int(length)) <= allowed


@settings(max_examples=200, deadline=None)
@given(surfaces, texts, st.floats(1e4, 1e9))
def test_a_recipe_can_state_every_limit(surface, lengths, room):
    limits = surface.limits(room, lengths)
    if limits is not None:
        GradientAccumulation(tokens=limits.tokens, attention=limits.attention)


@settings(max_examples=200, deadline=None)
@given(lines, st.floats(0, 1e6), st.integers(1, 600), st.floats(1e6, 1e9))
def test_texts_of_one_length_fill_the_room(line, update, length, room):
    """One more than the limit allows is too much, or the limit is above all that is ever asked for."""
    surface = Surface({"backward": line}, update, 0, CostModel(0.0, 0.0), 1e-6, 0.0)
    limits = surface.limits(room, np.array([length]))
    if limits is not None and limits.tokens < 2**40:
        assert surface.peak(limits.most_examples(length) + 2, length) > room


def test_limits_are_none_where_the_longest_text_alone_does_not_fit():
    surface = Surface({"backward": Line(1000, 10, 0, 0)}, 0, 0, CostModel(0.0, 0.0), 1e-6, 0.0)
    assert surface.limits(1000 + 10 * 99, np.array([5, 100])) is None
    assert surface.limits(1000 + 10 * 100, np.array([5, 100])) == Limits(tokens=100)


@pytest.mark.parametrize("longest", [41, 300, 512])
def test_the_longest_text_alone_is_a_micro_batch_where_it_just_fits(longest):
    """Also where it counts for no whole number of tokens."""
    surface = Surface({"backward": Line(1000, 10, 0.0123, 0)}, 0, 0, CostModel(0.0, 0.0), 1e-6, 0.0)
    lengths = np.array([5, 30, longest])
    limits = surface.limits(surface.peak(1, longest) * (1 + 1e-9), lengths)
    assert [limits.most_examples(int(length)) >= 1 for length in lengths] == [True] * 3
    assert surface.limits(surface.peak(1, longest) * 0.999, lengths) is None


def test_limits_are_none_where_the_update_itself_does_not_fit():
    surface = Surface({"backward": Line(0, 1, 0, 0)}, 501, 0, CostModel(0.0, 0.0), 1e-6, 0.0)
    assert surface.limits(500, np.array([5])) is None
    assert surface.limits(501, np.array([5])) is not None
