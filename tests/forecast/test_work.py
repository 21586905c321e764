"""The time made of what operators cost ranks ways to train as they were measured."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
import torch

from launcher.devices import CPU, find_device
from launcher.forecast.fake_world import fake_world
from launcher.forecast.kernels import Kernel
from launcher.forecast.tracker import Tracker
from launcher.forecast.work import BANDWIDTH_SHARE, MATRIX_SHARE, Work, WorkRecorder
from launcher.host import on_host
from tests.forecast.published import PUBLISHED, agreement, speeds, varied, works

V100 = find_device("V100")


def test_copies_to_the_host_go_over_the_link():
    recorder, tensor = WorkRecorder(), torch.empty(10, 10)
    with recorder:
        with on_host():
            tensor.clone()
            torch.empty(10, 10).copy_(tensor)
            tensor.view(-1)
        tensor.clone()
    work = recorder.take()
    assert work == Work({Kernel(False, 0, 800, 1): 1}, 2 * 400)
    assert work.seconds(V100) == pytest.approx(V100.launch + 800 / V100.link)


def test_each_kernel_takes_as_long_as_its_slowest_part():
    flops, half, moved, launched = (
        Kernel(False, 10**12, 1, 1),
        Kernel(True, 10**12, 1, 1),
        Kernel(False, 1, 10**9, 1),
        Kernel(False, 1, 1, 7),
    )
    assert Work({flops: 2}).seconds(V100) == pytest.approx(2 * 1e12 / (15.7e12 * MATRIX_SHARE))
    assert Work({half: 1}).seconds(V100) == pytest.approx(1e12 / (125e12 * MATRIX_SHARE))
    assert Work({moved: 1}).seconds(V100) == pytest.approx(1e9 / (900e9 * BANDWIDTH_SHARE))
    assert Work({launched: 1}).seconds(V100) == pytest.approx(7 * V100.launch)


def test_work_adds_up_and_goes_through_json():
    one, two = Kernel(True, 7, 8, 1), Kernel(False, 0, 8, 2)
    total = Work({one: 2}, 5) + Work({one: 1, two: 4}, 6)
    assert total == Work({one: 3, two: 4}, 11)
    assert sum([Work({one: 1})] * 3, Work()) == Work({one: 3})
    again = Work.from_json(json.loads(json.dumps(total.as_json())))
    assert again == total
    assert again.seconds(V100) == total.seconds(V100)


def test_take_starts_anew():
    recorder = WorkRecorder()
    with recorder:
        torch.empty(4).add_(1)
        assert recorder.take() == Work({Kernel(False, 0, 32, 1): 1})
    assert recorder.take() == Work()


def real_step(recipe, examples, modes):
    """The product's own update of so many texts of 40 tokens, all in one micro-batch, on fake tensors."""
    from accelerate.state import AcceleratorState

    from launcher.batches import MicroBatch, Update
    from launcher.build import build_session
    from launcher.check import check
    from launcher.load import load_data, make_parts
    from launcher.model import new_model
    from launcher.plan import make_plan
    from launcher.processes import start_form
    from launcher.train import train_update

    AcceleratorState._reset_state(reset_partial_state=True)
    plan = make_plan(check(recipe))
    accelerator = start_form(plan)
    with fake_world():
        session = build_session(plan, accelerator, make_parts(plan, load_data(plan), new_model))
        longest = np.argsort(session.examples.lengths.used)[-examples:]
        with modes[0], modes[1]:
            train_update(session, Update((MicroBatch(longest, examples),), examples))
    AcceleratorState._reset_state(reset_partial_state=True)


def test_a_real_training_step_takes_longer_with_more_tokens(recipe):
    seconds = []
    for examples in (2, 8, 24):
        recorder = WorkRecorder()
        real_step(recipe(), examples, (recorder, Tracker()))
        work = recorder.take()
        assert len(work.kernels) < 300  # cheap to keep
        seconds.append(work.seconds(CPU))
    assert seconds[0] < seconds[1] < seconds[2]


def test_memory_and_real_work_are_followed_together(recipe):
    """In either order the work is the same, and so is the memory."""
    found = []
    for is_outer in (True, False):
        recorder, tracker = WorkRecorder(), Tracker()
        real_step(recipe(), 8, (recorder, tracker) if is_outer else (tracker, recorder))
        found.append((recorder.take(), [(event.size, event.phase) for event in tracker.events]))
    assert found[0][0] == found[1][0]
    assert found[0][1] == found[1][1]
    assert len(found[0][1]) > 100


@pytest.fixture(scope="module")
def published_works():
    return works()


def test_bert_large_computes_what_its_formula_says_of_the_published_batch(published_works):
    """Kaplan et al., 2020: 6 operations a weight and token, and attention's 12 a layer, position pair and width."""
    tokens, weights = 4 * 512, 24 * 12 * 1024**2
    expected = tokens * (6 * weights + 12 * 24 * 512 * 1024)
    flops = [sum(kernel.flops * count for kernel, count in work.kernels.items()) for work in published_works]
    assert flops[0] == pytest.approx(expected, rel=0.01)
    assert flops[2] == pytest.approx(expected * 4 / 3, rel=0.01)  # checkpointing runs forward again


def test_step_time_ranks_the_nine_published_settings(published_works):
    assert agreement(published_works, V100) >= 0.95


def test_the_published_ranking_does_not_hang_on_what_is_assumed(published_works):
    found = [
        agreement(published_works, varied(V100, matrices, bandwidth, launch))
        for matrices, bandwidth, launch in product((0.5, 0.75, 1.0), (0.6, 0.8, 1.0), (2e-6, 6e-6, 12e-6))
    ]
    assert min(found) >= 0.95


def test_predicted_speeds_are_within_a_factor_of_the_published(published_works):
    """A guard against a lost order of magnitude, no promise."""
    for setting, speed in zip(PUBLISHED, speeds(published_works, V100), strict=True):
        assert 1 / 2 < speed / setting.speed < 2, setting.name
