"""AdamW with its states on the host is AdamW: the same bits, the same checkpoints."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.optim import AdamW
from torch.utils._python_dispatch import TorchDispatchMode

from launcher.host import is_on_host
from launcher.offloaded_adamw import OffloadedAdamW

MATRICES, VECTORS = [(60, 53), (7, 9), (16, 128), (1000, 3)], [(53,), (129,), (1,)]
ROOM = 512  # elements of a chunk: less than three of the matrices, more than the vectors together
SMALL = {"chunk_bytes": (ROOM + 7) * 8}  # no whole number of a kernel's vectors


def make_parameters(device="cpu"):
    generator = torch.Generator().manual_seed(0)
    shapes = [*MATRICES, *VECTORS]
    return [torch.randn(shape, generator=generator).to(device).requires_grad_() for shape in shapes]


def groups_of(parameters):
    return [
        {"params": [p for p in parameters if p.ndim == 2], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
    ]


def plain(parameters):
    return AdamW(groups_of(parameters), lr=1e-2, fused=True)


def offloaded(parameters):
    return OffloadedAdamW(groups_of(parameters), lr=1e-2, **SMALL)


def train(optimizer, first, end):
    """Steps with gradients of all magnitudes, which depend on the step alone, and a rate that falls."""
    for number in range(first, end):
        generator = torch.Generator().manual_seed(number)
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 / (1 + number)
            for p in group["params"]:
                scale = 10 ** torch.empty(p.shape).uniform_(-6, 1, generator=generator)
                p.grad = (torch.randn(p.shape, generator=generator) * scale).to(p.device)
        optimizer.step()


def assert_same(found, expected):
    """Weights and states, bit for bit."""
    parameters = ([p for group in optimizer.param_groups for p in group["params"]] for optimizer in (found, expected))
    for p, q in zip(*parameters, strict=True):
        assert torch.equal(p, q)
        assert set(found.state[p]) == set(expected.state[q]) == {"step", "exp_avg", "exp_avg_sq"}
        for name, value in expected.state[q].items():
            assert torch.equal(found.state[p][name], value.to(found.state[p][name].device)), name


def test_every_bit_is_that_of_fused_adamw():
    ours, theirs = offloaded(make_parameters()), plain(make_parameters())
    train(ours, 0, 5)
    train(theirs, 0, 5)
    assert_same(ours, theirs)


@pytest.mark.device
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_every_bit_is_that_of_fused_adamw_on_a_card():
    ours, theirs = offloaded(make_parameters("cuda")), plain(make_parameters("cuda"))
    train(ours, 0, 5)
    train(theirs, 0, 5)
    assert_same(ours, theirs)
    assert all(state[name].is_pinned() for state in ours.state.values() for name in ("exp_avg", "exp_avg_sq"))


@pytest.mark.parametrize(("before", "after"), [(plain, offloaded), (offloaded, plain), (offloaded, offloaded)])
def test_a_checkpoint_goes_on_as_if_nothing_had_been(before, after):
    expected = plain(make_parameters())
    train(expected, 0, 4)
    first = before(make_parameters())
    train(first, 0, 2)
    parameters = [p.detach().clone().requires_grad_() for group in first.param_groups for p in group["params"]]
    second = after(parameters)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    train(second, 2, 4)
    assert_same(second, expected)


def test_a_loaded_state_is_a_copy():
    first = offloaded(make_parameters())
    train(first, 0, 1)
    saved = first.state_dict()
    before = copy.deepcopy(saved)
    second = offloaded(make_parameters())
    second.load_state_dict(saved)
    train(second, 1, 2)
    assert all(
        torch.equal(state[name], before["state"][number][name])
        for number, state in saved["state"].items()
        for name in ("exp_avg", "exp_avg_sq")
    )


def test_loading_leaves_states_on_the_host_and_takes_step_to_the_parameters():
    first = AdamW(groups_of(make_parameters()), foreach=True)
    train(first, 0, 1)
    saved = first.state_dict()
    elsewhere = offloaded(make_parameters("meta"))
    elsewhere.load_state_dict(saved)
    states = list(elsewhere.state.values())
    assert len(states) == len(MATRICES) + len(VECTORS)
    assert {(name, value.device.type) for state in states for name, value in state.items()} == {
        ("step", "meta"),
        ("exp_avg", "cpu"),
        ("exp_avg_sq", "cpu"),
    }
    assert torch.equal(states[0]["exp_avg"], saved["state"][0]["exp_avg"])


def test_what_has_no_gradient_is_left_alone():
    parameters = make_parameters()
    ours = offloaded(parameters)
    before = parameters[0].detach().clone()
    for p in parameters[1:]:
        p.grad = torch.ones_like(p)
    ours.step()
    assert torch.equal(parameters[0], before)
    assert len(ours.state_dict()["state"]) == len(parameters) - 1
    ours.zero_grad()
    ours.step()
    assert all(float(state["step"]) == 1 for state in ours.state.values())


class Watch(TorchDispatchMode):
    """What the step does, as a follower of the run sees it: numbers of elements."""

    def __init__(self):
        super().__init__()
        self.on_host, self.updates, self.visitors = [], [], set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name == "_fused_adamw_":
            assert not is_on_host()
            self.updates.append(sum(p.numel() for p in args[0]))
            self.visitors |= {t.untyped_storage()._cdata for states in args[2:4] for t in states}
        if is_on_host():
            self.on_host.append((name, result.numel()))
        return result


def test_states_are_made_on_the_host_and_each_travels_up_and_down_once_a_step():
    parameters = make_parameters()
    elements = sum(p.numel() for p in parameters)
    ours = offloaded(parameters)
    with Watch() as watch:
        train(ours, 0, 1)
    assert sum(count for name, count in watch.on_host if name == "zeros") == 2 * elements
    assert sum(count for name, count in watch.on_host if name == "copy_") == 4 * elements
    assert {name for name, _ in watch.on_host} == {"zeros", "copy_"}
    homes = {s[name].untyped_storage()._cdata for s in ours.state.values() for name in ("exp_avg", "exp_avg_sq")}
    assert not watch.visitors & homes


def test_no_more_than_two_chunks_are_on_the_device():
    parameters = make_parameters()
    with Watch() as watch:
        train(offloaded(parameters), 0, 1)
    assert sum(watch.updates) == sum(p.numel() for p in parameters)
    assert max(watch.updates) <= ROOM
    assert len(watch.updates) > 10
    assert len(watch.visitors) == 2


def test_a_step_that_overflowed_is_left_out():
    parameters = make_parameters()
    before = [p.detach().clone() for p in parameters]
    ours, scaler = offloaded(parameters), torch.amp.GradScaler("cpu")
    for expected in (0, 1):
        scaler.scale(torch.zeros(()))
        for p in parameters:
            p.grad = torch.full_like(p, 1.0 if expected else torch.inf)
        scaler.step(ours)
        scaler.update()
        assert all(float(state["step"]) == 1 for state in ours.state.values())
        assert len(ours.state) == expected * len(parameters)
        assert all(torch.equal(p, q) for p, q in zip(parameters, before, strict=True)) == (not expected)
