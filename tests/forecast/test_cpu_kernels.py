"""What a kernel allocates for itself, by its rule and by the allocator's own events while it runs."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves

from launcher.forecast.cpu_kernels import buffers_of

aten = torch.ops.aten
HALF, FULL = torch.bfloat16, torch.float32
SCALARS = 16  # bytes: numbers that become tensors


@pytest.fixture(params=[1, 2], autouse=True)
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def zeros(*shape, dtype=FULL):
    return torch.zeros(*shape, dtype=dtype)


def rows(dtype=FULL):
    return zeros(40, 50, dtype=dtype)


def indices(*shape, dtype=torch.int64):
    return zeros(*shape, dtype=dtype)


def said_and_seen(func, args, kwargs):
    """Bytes by the rule; bytes above what lives after the call."""
    with profile(profile_memory=True, activities=[ProfilerActivity.CPU]) as recorded:
        result = func(*args, **kwargs)
    held = most = 0
    for event in sorted(recorded.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        held += event.nbytes() if event.name() == "[memory]" else 0
        most = max(most, held)
    kept = sum({t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tree_leaves(result)}.values())
    return buffers_of(func, args, kwargs, result), most - min(kept, held)


PROMOTIONS = {
    "half and full": (aten.add.Tensor, lambda: (rows(HALF), rows())),
    "full and half, broadcast": (aten.mul.Tensor, lambda: (zeros(50), rows(HALF))),
    "half and full, subtracted": (aten.sub.Tensor, lambda: (rows(HALF), zeros(40, 1))),
    "in place": (aten.add_.Tensor, lambda: (rows(), rows(HALF))),
    "in place, into half": (aten.mul_.Tensor, lambda: (rows(HALF), rows())),
    "compared": (aten.lt.Tensor, lambda: (rows(HALF), rows())),
    "integers of two sizes": (aten.eq.Tensor, lambda: (indices(9, 9), indices(9, 9, dtype=torch.int32))),
    "integers by a fraction": (aten.mul.Tensor, lambda: (indices(9, 9), 0.5)),
    "integers divided": (aten.div.Tensor, lambda: (indices(9, 9), indices(9, 9))),
    "integers compared with a fraction": (aten.gt.Scalar, lambda: (indices(9, 9), 0.5)),
    "half by a full number": (aten.mul.Tensor, lambda: (rows(HALF), torch.tensor(0.5))),
    "truth values": (aten.mul.Tensor, lambda: (rows(), rows() > 0)),
    "half by a number": (aten.mul.Tensor, lambda: (rows(HALF), 0.5)),
    "half to a power": (aten.pow.Tensor_Scalar, lambda: (rows(HALF), 3)),
    "half and half": (aten.add.Tensor, lambda: (rows(HALF), rows(HALF))),
}
REDUCTIONS = {
    "sum of truth values": (aten.sum.default, lambda: (rows() > 0,)),
    "sum of half": (aten.sum.dim_IntList, lambda: (rows(HALF), [0])),
    "running sum of small integers": (aten.cumsum.default, lambda: (indices(9, 9, dtype=torch.int32), 0)),
    "mean of half": (aten.mean.dim, lambda: (rows(HALF), [1])),
    "mean of all": (aten.mean.default, lambda: (rows(HALF),)),
    "mean of full": (aten.mean.dim, lambda: (rows(), [1])),
}
INDEXED = {
    f"{name}, {dtype}": (func, lambda make=make, dtype=dtype: make(dtype))
    for dtype in (HALF, FULL)
    for name, func, make in [
        ("gather", aten.gather.default, lambda dtype: (rows(dtype), 0, indices(30, 50))),
        ("index_add", aten.index_add.default, lambda dtype: (rows(dtype), -1, indices(50), rows(dtype))),
    ]
} | {"scatter_add": (aten.scatter_add.default, lambda: (rows(HALF), 0, indices(30, 50), zeros(30, 50, dtype=HALF)))}
PRODUCTS = {
    "mm": (aten.mm.default, lambda: (rows(HALF), zeros(50, 60, dtype=HALF))),
    "mm of a transposed": (aten.mm.default, lambda: (zeros(99, 40, dtype=HALF).t(), zeros(99, 60, dtype=HALF))),
    "mm in full": (aten.mm.default, lambda: (rows().t(), rows())),
    "addmm": (aten.addmm.default, lambda: (zeros(60, dtype=HALF), rows(HALF), zeros(50, 60, dtype=HALF))),
    "bmm": (
        aten.bmm.default,
        lambda: (zeros(42, 48, 16, dtype=HALF).transpose(0, 1), zeros(48, 16, 84, dtype=HALF)),
    ),
}


@pytest.mark.parametrize("name", [*PROMOTIONS, *REDUCTIONS, *INDEXED, *PRODUCTS])
def test_buffers_are_those_that_the_allocator_sees(name):
    func, make = (PROMOTIONS | REDUCTIONS | INDEXED | PRODUCTS)[name]
    said, seen = said_and_seen(func, make(), {})
    assert said == pytest.approx(seen, abs=SCALARS)


@pytest.mark.parametrize("dtype", [HALF, FULL])
@pytest.mark.parametrize("contiguous", [True, False])
def test_layer_norm_sums_by_thread_and_copies_what_is_not_contiguous(dtype, contiguous):
    tensor, weight = zeros(40, 64, dtype=dtype), zeros(64)
    _, mean, deviation = aten.native_layer_norm(tensor, [64], weight, weight, 1e-5)
    gradient = tensor if contiguous else zeros(64, 40, dtype=dtype).t()
    args = gradient, tensor, [64], mean, deviation, weight, weight, [True] * 3
    said, seen = said_and_seen(aten.native_layer_norm_backward.default, args, {})
    assert said == seen
    assert said > 0


@pytest.mark.parametrize("dtype", [HALF, FULL])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("length", [42, 191, 192, 600, 767, 768])
def test_attention_works_in_blocks_by_thread(dtype, masked, length):
    query, key, value = (zeros(2, length, 4, 64, dtype=dtype).transpose(1, 2) for _ in range(3))
    options = {"attn_mask": zeros(2, 1, length, length, dtype=dtype)} if masked else {}
    forward = aten._scaled_dot_product_flash_attention_for_cpu.default
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    out, sums = forward(query, key, value, **options)
    assert_close(*said_and_seen(forward, (query, key, value), options))
    for gradient in (out, zeros(*out.shape, dtype=dtype)):
        assert_close(*said_and_seen(backward, (gradient, query, key, value, out, sums, 0.0, False), options))


def assert_close(said, seen):
    """Several threads need not reach their fullest moment together."""
    assert said == pytest.approx(seen, rel=0 if torch.get_num_threads() == 1 else 0.05)
    assert said > 0


def test_what_has_no_rule_has_no_buffers():
    assert buffers_of(aten.gelu.default, (rows(HALF),), {}, rows(HALF)) == 0
