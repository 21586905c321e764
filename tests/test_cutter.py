"""The cutter against its definition: every example once, every limit kept, never worse than equal cuts."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.batches import Cutter
from launcher.cutter import CostModel, Limits, cut_in_order, cut_sorted, deal, predicted_time
from launcher.padding import Padding

lengths_of_texts = st.lists(st.integers(1, 512), min_size=1, max_size=64).map(lambda x: np.array(x, np.int64))
costs = st.builds(CostModel, overhead=st.floats(0, 2000), attention=st.floats(0, 0.01))
processes = st.integers(1, 4)
limits = st.one_of(
    st.builds(Limits, examples=st.integers(1, 32)),
    st.builds(Limits, tokens=st.integers(512, 4096)),
    st.builds(Limits, examples=st.integers(1, 32), tokens=st.integers(512, 4096)),
    st.just(Limits()),
)
paddings = st.builds(Padding, multiple_of=st.sampled_from([1, 8, 64]), limit=st.just(512))


def cutters(lengths, padding, limit, cost, in_length_order, count):
    return [Cutter(lengths, padding, limit, cost, in_length_order, count, rank) for rank in range(count)]


@settings(max_examples=300, deadline=None)
@given(lengths_of_texts, paddings, limits, costs, st.booleans(), processes)
def test_every_example_runs_exactly_once_on_one_process(lengths, padding, limit, cost, in_length_order, count):
    updates = [c.cut(np.arange(len(lengths))) for c in cutters(lengths, padding, limit, cost, in_length_order, count)]
    run = [m.examples for update in updates for m in update.micro_batches if m.weight == 1]
    assert sorted(np.concatenate(run).tolist()) == list(range(len(lengths)))
    assert {update.examples for update in updates} == {len(lengths)}
    assert {m.weight for update in updates for m in update.micro_batches} <= {0.0, 1.0}


@settings(max_examples=300, deadline=None)
@given(lengths_of_texts, paddings, limits, costs, st.booleans(), processes)
def test_no_micro_batch_passes_a_limit_and_all_processes_run_as_many(
    lengths, padding, limit, cost, in_length_order, count
):
    processes_of = cutters(lengths, padding, limit, cost, in_length_order, count)
    updates = [cutter.cut(np.arange(len(lengths))) for cutter in processes_of]
    assert len({len(update.micro_batches) for update in updates}) == 1
    for cutter, update in zip(processes_of, updates, strict=True):
        for micro_batch in update.micro_batches:
            size = len(micro_batch.examples)
            assert size > 0
            assert limit.examples is None or size <= limit.examples
            assert limit.tokens is None or size * cutter.padded_length(micro_batch.examples) <= limit.tokens


@settings(max_examples=300, deadline=None)
@given(lengths_of_texts, st.integers(1, 32), costs, processes)
def test_the_cut_is_never_slower_than_equal_cuts_of_the_same_limit(lengths, examples, cost, count):
    ordered, limit = np.sort(lengths), Limits(examples=examples)
    ours = cut_sorted(ordered, processes=count, limits=limit, cost=cost)
    for order in (ordered, lengths):
        equal = cut_in_order(order, processes=count, limits=limit)
        slower = predicted_time(order, equal, processes=count, cost=cost)
        assert predicted_time(ordered, ours, processes=count, cost=cost) <= slower * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 100), min_size=1, max_size=8), costs, st.integers(1, 3), st.integers(100, 400))
def test_the_cut_is_the_best_of_all_contiguous_ones(lengths, cost, count, tokens):
    """Against trying every one of them."""
    ordered, limit = np.sort(np.array(lengths, np.int64)), Limits(tokens=tokens)
    ours = predicted_time(
        ordered, cut_sorted(ordered, processes=count, limits=limit, cost=cost), processes=count, cost=cost
    )
    best = np.inf
    for number in range(len(ordered)):
        for inner in combinations(range(1, len(ordered)), number):
            edges = [0, *inner, len(ordered)]
            cuts = [slice(a, b) for a, b in pairwise(edges)]
            if all(-(-(c.stop - c.start) // count) * ordered[c].max() <= tokens for c in cuts):
                best = min(best, predicted_time(ordered, cuts, processes=count, cost=cost))
    assert ours == pytest.approx(best, rel=1e-9)


@settings(max_examples=200, deadline=None)
@given(lengths_of_texts, st.integers(2, 4))
def test_dealing_balances_tokens_to_within_the_longest_text(lengths, count):
    ordered = np.sort(lengths)
    tokens = [int(ordered[hand].sum()) for hand in deal(np.arange(len(ordered)), processes=count)]
    assert max(tokens) - min(tokens) <= int(ordered.max())


@settings(max_examples=200, deadline=None)
@given(lengths_of_texts, paddings, limits, costs, processes, st.integers(1, 64), st.integers(0, 99))
def test_no_update_brings_more_padded_tokens_than_the_worst_case(
    lengths, padding, limit, cost, count, batch_size, seed
):
    cutter = Cutter(lengths, padding, limit, cost, True, count, 0)
    worst = cutter.worst(batch_size).examples
    drawn = np.random.default_rng(seed).permutation(len(lengths))[:batch_size]
    for rank_cutter in cutters(lengths, padding, limit, cost, True, count):
        for micro_batch in rank_cutter.cut(drawn).micro_batches:
            tokens = len(micro_batch.examples) * cutter.padded_length(micro_batch.examples)
            assert tokens <= len(worst) * cutter.padded_length(worst)


def test_a_text_longer_than_a_whole_micro_batch_is_found_beforehand():
    lengths = np.array([10, 90, 20])
    assert Cutter(lengths, Padding(), Limits(tokens=64), CostModel(0, 0), True).too_long() == 90
    assert Cutter(lengths, Padding(), Limits(tokens=90), CostModel(0, 0), True).too_long() is None
