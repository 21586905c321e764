"""CUDA's autocast on tensors of the CPU: what is cast, how often, and what is kept for backward."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from launcher.forecast import cuda_autocast as lists
from launcher.forecast.cuda_autocast import cuda_autocast
from launcher.forecast.cuda_rules import cuda_rules

HALF = torch.bfloat16


def test_the_cpus_lists_are_off_inside_and_back_outside():
    def types():
        return torch.ones(4, 4, dtype=HALF).trace().dtype, torch.ones(4, 4, dtype=HALF).exp().dtype

    with torch.autocast("cpu"):
        assert types() == (torch.float32, HALF)
        with cuda_autocast("bf16"):
            assert types() == (HALF, torch.float32)
        assert types() == (torch.float32, HALF)


class Casts(TorchDispatchMode):
    """Counts the copies to half precision by their size."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default and result.dtype == HALF:
            self.sizes.append(result.numel())
        return result


def casts_of(compute):
    """Sizes of the casts in one autocast, by CUDA's lists and by torch's own CPU kernels."""
    found = []
    for rules in (cuda_autocast("bf16"), nullcontext()):
        with rules, Casts() as casts, torch.autocast("cpu"):
            compute()
        found.append(casts.sizes)
    return found


def test_a_weight_is_cast_once_and_an_activation_each_time():
    weight, activation = nn.Parameter(torch.ones(5, 5)), torch.ones(2, 5)

    def compute():
        functional.linear(activation, weight) + functional.linear(activation, weight)

    ours, torchs = casts_of(compute)
    assert sorted(ours) == sorted(torchs) == [10, 10, 25]


@pytest.mark.parametrize("view", [lambda weight: weight.t(), lambda weight: weight.detach()[:5].requires_grad_()])
def test_what_is_a_view_of_a_weight_is_cast_each_time(view):
    weight, activation = nn.Parameter(torch.ones(5, 5)), torch.ones(2, 5, dtype=HALF)

    def compute():
        seen = view(weight)
        torch.mm(activation, seen) + torch.mm(activation, seen)

    ours, torchs = casts_of(compute)
    assert ours == torchs == [25, 25]


def test_the_casts_of_weights_are_forgotten_where_autocast_ends():
    weight, activation = nn.Parameter(torch.ones(5, 5)), torch.ones(2, 5, dtype=HALF)
    with cuda_autocast("bf16"), Casts() as casts:
        for _ in range(2):
            with torch.autocast("cpu"):
                functional.linear(activation, weight)
                with torch.autocast("cpu", enabled=False):
                    pass  # an inner one forgets nothing
                functional.linear(activation, weight)
    assert casts.sizes == [25, 25]


@pytest.mark.parametrize("name", ["softmax.int", "log_softmax.int"])
@pytest.mark.parametrize(("precision", "copies"), [("fp16", 0), ("bf16", 1)])
def test_softmax_copies_bf16_and_reads_fp16_as_it_is(name, precision, copies):
    class Copies(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.count += func is torch.ops.aten._to_copy.default
            return func(*args, **(kwargs or {}))

    half = lists.HALF_TYPES[precision]
    with FakeTensorMode(), cuda_autocast(precision), torch.autocast("cpu", dtype=half), Copies() as found:
        scores = torch.ones(4, 4, dtype=half).requires_grad_()
        result = lists._operator(name)(scores, -1)
        assert result.dtype == torch.float32
        assert found.count == copies
    result.sum().backward()
    assert scores.grad.dtype == half


@pytest.mark.parametrize("capability", [(7, 0), (8, 0)])
@pytest.mark.parametrize(("mask", "cast"), [(None, []), (torch.float32, [256]), (torch.bool, [])])
def test_attention_and_its_mask_are_cast(capability, mask, cast):
    with FakeTensorMode(), cuda_rules(capability, "bf16"), torch.autocast("cpu"), Casts() as casts:
        heads = torch.ones(1, 2, 16, 4, dtype=torch.float32).requires_grad_()
        added = torch.ones(1, 1, 16, 16, dtype=mask) if mask else None
        assert functional.scaled_dot_product_attention(heads, heads, heads, added).dtype == HALF
    assert casts.sizes == [128, 128, 128, *cast]


def test_gpt2s_activation_function_keeps_float32_for_its_power():
    """Saved for backward, by an element: x / 2 in half precision; x for the power, the tanh, and it plus one in full.

    On a CPU the power is on no list and all four stay in half precision.
    """

    def bytes_saved(rules):
        saved = {}
        with (
            rules,
            torch.autocast("cpu"),
            torch.autograd.graph.saved_tensors_hooks(
                lambda tensor: saved.update({tensor.data_ptr(): tensor.untyped_storage().nbytes()}) or tensor,
                lambda x: x,
            ),
        ):
            x = torch.ones(1000, dtype=HALF, requires_grad=True)
            kept = 0.5 * x * (1.0 + torch.tanh(0.8 * (x + 0.044715 * torch.pow(x, 3.0))))
            assert kept.requires_grad
        return sum(saved.values()) / 1000

    assert bytes_saved(cuda_autocast("bf16")) == 2 + 4 + 4 + 4
    assert bytes_saved(nullcontext()) == 2 + 2 + 2 + 2
