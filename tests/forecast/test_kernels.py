"""What single operators cost."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from launcher.forecast.cuda_rules import cuda_rules
from launcher.forecast.kernels import Kernel
from launcher.forecast.work import WorkRecorder


@pytest.fixture(autouse=True)
def fake():
    with FakeTensorMode():
        yield


def recorded(run, *tensors):
    """Kernels of `run` on fake tensors, each as often as it ran."""
    recorder = WorkRecorder()
    with recorder:
        run(*tensors)
    return [kernel for kernel, count in recorder.take().kernels.items() for _ in range(count)]


def test_a_matrix_product_is_two_operations_a_multiplication_and_three_matrices():
    assert recorded(torch.mm, torch.empty(8, 16), torch.empty(16, 4)) == [
        Kernel(False, 2 * 8 * 16 * 4, 4 * (8 * 16 + 16 * 4 + 8 * 4), 1)
    ]


def test_half_precision_is_known_where_there_is_arithmetic():
    half = torch.empty(8, 8, dtype=torch.float16)
    assert [kernel.is_half for kernel in recorded(torch.mm, half, half)] == [True]
    assert [kernel.is_half for kernel in recorded(torch.sin, half)] == [False]


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x.view(-1).detach().unsqueeze(0).expand(3, -1)[:, 1:].T,
        lambda x: torch.ops.aten._unsafe_view(x, [-1]),
        lambda x: x.transpose_(0, 1),
        lambda x: torch.empty(3) if x.shape[0] else x,
        lambda x: torch.empty_like(x),
        lambda x: x.split(2),
    ],
)
def test_views_and_empty_memory_cost_nothing(run):
    assert recorded(run, torch.empty(4, 4)) == []


@pytest.mark.parametrize(
    ("run", "moved"),
    [
        (lambda x: x.add_(1), 2 * 400),
        (lambda x: x.zero_(), 400),
        (lambda x: torch.zeros_like(x), 400),
        (lambda x: x.sum(), 400 + 4),
        (lambda x: x * x, 2 * 400),  # the same memory is read once
        (lambda x: x + torch.empty(1, 1).expand(10, 10), 2 * 400 + 4),  # what is expanded is there once
        (lambda x: x.to(torch.float16), 400 + 200),
        (lambda x: x.t().contiguous(), 2 * 400),
    ],
)
def test_memory_that_is_read_and_written_counts(run, moved):
    assert [kernel.moved for kernel in recorded(run, torch.empty(10, 10))] == [moved]


def test_looking_up_rows_does_not_read_the_whole_table():
    table, rows = torch.empty(30_000, 8), torch.zeros(3, dtype=torch.long)
    assert [kernel.moved for kernel in recorded(functional.embedding, rows, table)] == [2 * 3 * 8 * 4 + 3 * 8]


def attention_flops(capability, dtype):
    """Of attention over 2 x 4 heads, 32 positions, 16 wide: forward and backward."""
    query, key, value = (torch.empty(2, 4, 32, 16, dtype=dtype, requires_grad=True) for _ in range(3))

    def run():
        functional.scaled_dot_product_attention(query, key, value).sum().backward()

    if capability is None:
        return sorted(kernel.flops for kernel in recorded(run) if kernel.flops)
    with cuda_rules(capability, "no"):
        return sorted(kernel.flops for kernel in recorded(run) if kernel.flops)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("capability", [None, (7, 0), (8, 0)], ids=["CPU", "efficient", "efficient or flash"])
def test_every_kernel_of_attention_is_counted(capability, dtype):
    product = 2 * 2 * 4 * 32 * 32 * 16
    assert attention_flops(capability, dtype) == [2 * product, 5 * product]  # backward makes the scores again


def test_grouped_matrices_of_experts_are_counted():
    tokens, experts = torch.empty(64, 16, dtype=torch.bfloat16), torch.empty(4, 16, 32, dtype=torch.bfloat16)
    offsets = torch.zeros(4, dtype=torch.int32)
    expected = 2 * 64 * 16 * 32
    forward = recorded(lambda: functional.grouped_mm(tokens, experts, offs=offsets))
    weights = recorded(lambda: functional.grouped_mm(tokens.t(), torch.empty(64, 32).bfloat16(), offs=offsets))
    assert [max(kernel.flops for kernel in kernels) for kernels in (forward, weights)] == [expected, expected]


def stepped(parameters, **options):
    weights = [nn.Parameter(torch.zeros(64)) for _ in range(parameters)]
    optimizer = torch.optim.AdamW(weights, **options)
    for weight in weights:
        weight.grad = torch.zeros(64)
    optimizer.step()
    return sum(kernel.launches for kernel in recorded(optimizer.step))


def test_a_fused_optimizer_starts_a_few_kernels_and_a_loop_some_for_each_parameter():
    fused, each, loop = (
        stepped(100, **options) for options in ({"fused": True}, {"foreach": True}, {"foreach": False})
    )
    assert fused == -(-100 // 30) + -(-100 // 110)  # five lists, and their steps
    assert fused < each < loop / 10
    assert loop >= 8 * 100


def test_lists_of_large_tensors_take_a_launch_for_every_320_chunks():
    large = [torch.empty(320 * 65536 + 1) for _ in range(2)]
    assert [kernel.launches for kernel in recorded(lambda: torch._foreach_add_(large, 1.0))] == [3]
