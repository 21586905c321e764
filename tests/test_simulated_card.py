"""The card that is not there, against torch's own allocator events of the same updates."""

from __future__ import annotations

import gc

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from launcher.simulated_card import SimulatedCard
from launcher.train import train_update
from tests.families import make_family

PLENTY = 10**12
KIB = 1024


def kib(count):
    """A tensor of so many KiB."""
    return torch.empty(count * KIB // 4)


def test_what_operators_return_is_counted_as_long_as_it_lives():
    with SimulatedCard(PLENTY) as card:
        first = kib(4)
        second = first + 1
        assert card.held == 8 * KIB
        del first
        assert card.held == 4 * KIB
        assert card.peak == 8 * KIB
        del second
    assert card.held == 0


def test_views_and_changes_in_place_take_nothing():
    with SimulatedCard(PLENTY) as card:
        tensor = kib(4)
        views = [tensor.view(-1), tensor[10:], tensor.detach(), tensor.unsqueeze(0).expand(9, -1)]
        tensor.add_(1).mul_(2)
        views[0].zero_()
        assert card.held == card.peak == 4 * KIB
        del tensor
        assert card.held == 4 * KIB  # the views hold it


def test_one_byte_too_many_is_out_of_memory_and_says_sizes():
    with SimulatedCard(10 * KIB) as card:
        kept = [kib(4), kib(4)]
        with pytest.raises(torch.OutOfMemoryError) as error:
            kib(4)
        assert str(error.value) == "simulated card of 10.0 KiB: 4.0 KiB asked for, 8.0 KiB held"
        assert card.held == 8 * KIB
        kept.append(kib(2))  # to the last byte
        assert card.held == 10 * KIB
        kept.clear()
        assert kib(8).numel()


def test_what_was_made_before_is_counted_when_it_is_held_and_once():
    tensors = [kib(4), kib(2)]
    card = SimulatedCard(6 * KIB)
    card.hold([*tensors, tensors[0].view(-1), tensors[0]])
    assert card.held == card.peak == 6 * KIB
    with card, pytest.raises(torch.OutOfMemoryError):
        kib(1)
    with pytest.raises(torch.OutOfMemoryError):
        card.hold([kib(1)])
    tensors.pop()
    assert card.held == 4 * KIB


def test_outside_nothing_new_is_counted_and_what_dies_is():
    card = SimulatedCard(PLENTY)
    with card:
        tensor = kib(4)
    other = kib(8)
    assert card.held == 4 * KIB
    del tensor
    assert card.held == 0
    assert other.numel()


def test_a_peak_starts_anew_from_what_is_held():
    with SimulatedCard(PLENTY) as card:
        kept = kib(4)
        kib(100)
        assert card.peak == 104 * KIB
        card.reset_peak()
        assert card.peak == 4 * KIB
        kib(10)
        assert card.peak == 14 * KIB
        assert kept.numel()


def peak_of_events(recorded):
    """Bytes above what lived when the profiler began."""
    events = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def backward_of_many_uses():
    """One tensor used five times: its third gradient and more are added in place, but under a mode."""
    weight = torch.zeros(100 * KIB // 4, requires_grad=True)
    used = weight.view(2, -1)
    total = sum(used.sum() for _ in range(5))
    return weight, total


def test_sums_of_gradients_count_as_if_they_were_made_in_place():
    weight, total = backward_of_many_uses()
    with profile(profile_memory=True, activities=[ProfilerActivity.CPU]) as recorded:
        total.backward()
    with SimulatedCard(PLENTY) as card:
        weight, total = backward_of_many_uses()
        before = card.held
        card.reset_peak()
        total.backward()
    assert card.peak - before == pytest.approx(peak_of_events(recorded), abs=KIB)
    assert weight.grad is not None


def update_of(session):
    return session.cutter.cut(next(session.sampler.updates(0, 1)))


def peak_by_the_profiler(session):
    """Of the second update, in which optimizer states are in place; all that lives before it counts."""
    optimizer = session.optimizer
    train_update(session, update_of(session))
    model = session.accelerator.unwrap_model(session.model)
    states = [v for values in optimizer.state.values() for v in values.values() if isinstance(v, torch.Tensor)]
    before = sum(t.untyped_storage().nbytes() for t in [*model.parameters(), *model.buffers(), *states])
    update = update_of(session)
    with profile(profile_memory=True, activities=[ProfilerActivity.CPU]) as recorded:
        train_update(session, update)
    return before + peak_of_events(recorded) + inputs_of(session, update)


def inputs_of(session, update):
    """Bytes of the largest batch, which numpy made, so that torch's allocator does not know of it."""
    columns = len(session.examples.tokens.column_names) + 1
    sizes = [len(one.examples) * session.cutter.padded_length(one.examples) for one in update.micro_batches]
    return 8 * columns * max(sizes)


def peak_by_the_card(session):
    card = SimulatedCard(PLENTY)
    card.hold([*session.model.parameters(), *session.model.buffers()])
    with card:
        train_update(session, update_of(session))
        gc.collect()
        update = update_of(session)
        card.reset_peak()
        train_update(session, update)
    return card.peak


CASES = {
    "whole": ("bert", {}),
    "micro_batches": ("bert", {"gradient_accumulation": {"micro_batch": 6}, "dynamic_padding": True}),
    "checkpointing": ("bert", {"gradient_checkpointing": True}),
    "adafactor": ("bert", {"adafactor": True}),
    "deberta": ("deberta-v2", {"gradient_accumulation": {"micro_batch": 6}}),
    "gpt2": ("gpt2", {"gradient_accumulation": {"micro_batch": 6}}),
    "albert": ("albert", {}),  # layers share their weights: gradients of many uses are summed
    "llama": ("llama", {"gradient_accumulation": {"micro_batch": 6}}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_real_update_takes_on_it_what_the_allocator_says(build, tmp_path, name):
    family, strategies = CASES[name]
    sections = {
        "model": {"source": str(make_family(family, tmp_path / "model")), "config": {}},
        "strategies": {"uniform_dynamic_padding": False, "fast_tokenizer": False} | strategies,
    }
    real = peak_by_the_profiler(build(**sections))
    assert peak_by_the_card(build(**sections)) == pytest.approx(real, rel=0.001)
