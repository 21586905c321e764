"""The lists of CUDA's autocast are torch's own, and every operator on them keeps its policy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from launcher.forecast import cuda_autocast as lists
from launcher.forecast.cuda_autocast import cuda_autocast

HALF = torch.bfloat16
LOSS_OF_ROWS = ["nll_loss", "multi_margin_loss"]
IMAGE = torch.Size([2, 3, 4, 4])


def square(dtype=HALF):
    return torch.ones(4, 4, dtype=dtype)


def ones(*shape, dtype=HALF):
    return torch.ones(*shape, dtype=dtype)


def targets(*shape):
    return torch.zeros(*shape, dtype=torch.int64)


def upsampled(name):
    dimensions = int(name.removesuffix("_aa")[-2])
    size = [8] * dimensions
    corners = [] if "nearest" in name else [False]
    return [ones(2, 3, *[4] * dimensions), size, *corners]


def cell(gates):
    return [ones(2, 4), ones(2, 4), ones(gates * 4, 4), ones(gates * 4, 4)]


def arguments_of(name):
    """What calls this operator; tensors in half precision."""
    known = {
        "_convolution": lambda: [ones(1, 2, 8), ones(2, 2, 3), None, [1], [0], [1], False, [0], 1, *[False] * 3, True],
        "convolution": lambda: [ones(1, 2, 8), ones(2, 2, 3), None, [1], [0], [1], False, [0], 1],
        "conv1d": lambda: [ones(1, 2, 8), ones(2, 2, 3)],
        "conv2d": lambda: [ones(1, 2, 8, 8), ones(2, 2, 3, 3)],
        "conv3d": lambda: [ones(1, 2, 8, 8, 8), ones(2, 2, 3, 3, 3)],
        "conv_tbc": lambda: [ones(8, 2, 3), ones(3, 3, 4), ones(4)],
        "conv_transpose1d": lambda: [ones(1, 2, 8), ones(2, 2, 3)],
        "conv_transpose2d.input": lambda: [ones(1, 2, 8, 8), ones(2, 2, 3, 3)],
        "conv_transpose3d.input": lambda: [ones(1, 2, 8, 8, 8), ones(2, 2, 3, 3, 3)],
        "prelu": lambda: [square(), ones(4)],
        "addmv": lambda: [ones(4), square(), ones(4)],
        "addr": lambda: [square(), ones(4), ones(4)],
        "mv": lambda: [square(), ones(4)],
        "einsum": lambda: ["ij,jk->ik", [square(), square()]],
        "addbmm": lambda: [square(), ones(2, 4, 4), ones(2, 4, 4)],
        "baddbmm": lambda: [ones(2, 4, 4)] * 3,
        "bmm": lambda: [ones(2, 4, 4)] * 2,
        "chain_matmul": lambda: [[square(), square()]],
        "linalg_multi_dot": lambda: [[square(), square()]],
        "lstm_cell": lambda: [ones(2, 4), [ones(2, 4), ones(2, 4)], *cell(4)[2:]],
        "gru_cell": lambda: cell(3),
        "rnn_tanh_cell": lambda: cell(1),
        "rnn_relu_cell": lambda: cell(1),
        "scaled_dot_product_attention": lambda: [ones(1, 2, 4, 8)] * 3,
        "pow.Tensor_Scalar": lambda: [square(), 3.0],
        "pow.Scalar": lambda: [3.0, square()],
        "layer_norm": lambda: [square(), [4], ones(4), ones(4)],
        "native_layer_norm": lambda: [square(), [4], ones(4), ones(4), 1e-5],
        "rms_norm": lambda: [square(), [4], ones(4)],
        "group_norm": lambda: [ones(2, 4, 8), 2],
        "frobenius_norm.dim": lambda: [square(), [1]],
        "nuclear_norm.dim": lambda: [square(), [0, 1]],
        "poisson_nll_loss": lambda: [square(), square(), True, False, 1e-8, 1],
        "cosine_embedding_loss": lambda: [square(), square(), ones(4)],
        "nll_loss2d": lambda: [ones(*IMAGE), targets(2, 4, 4)],
        "margin_ranking_loss": lambda: [ones(4), ones(4), ones(4)],
        "multilabel_margin_loss": lambda: [square(), targets(4, 4)],
        "triplet_margin_loss": lambda: [square()] * 3,
        "pdist": lambda: [square()],
        "renorm": lambda: [square(), 2, 0, 1.0],
        "logsumexp": lambda: [square(), [1]],
        "norm.ScalarOpt_dim": lambda: [square(), 2, [1]],
        "linalg_matrix_norm": lambda: [square(), 1],
        "sum.dim_IntList": lambda: [square(), [1]],
        "bilinear": lambda: [square(), square(), ones(4, 4, 4)],
        "cross": lambda: [ones(2, 3), ones(2, 3)],
        "dot": lambda: [ones(4), ones(4)],
        "vdot": lambda: [ones(4), ones(4)],
        "grid_sampler": lambda: [ones(*IMAGE), ones(2, 4, 4, 2), 0, 0, False],
        "index_put": lambda: [square(), [targets(2)], ones(2, 4)],
        "tensordot": lambda: [square(), square(), [1], [0]],
        "scatter_add": lambda: [square(), 0, targets(4, 4), square()],
    }
    if name in known:
        return known[name]()
    if "upsample" in name:
        return upsampled(name)
    if name in LOSS_OF_ROWS:
        return [square(), targets(4)]
    schema = lists._operator(name)._schema
    required = [argument for argument in schema.arguments if not argument.has_default_value()]
    values = {"Tensor": square, "int": lambda: 0, "number": lambda: 2}
    return [values[str(argument.type)]() for argument in required]


def floating(value):
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() else []
    return [x for part in value for x in floating(part)] if isinstance(value, (tuple, list)) else []


def in_float32(value):
    if isinstance(value, torch.Tensor):
        return value.float() if value.is_floating_point() else value
    return type(value)(in_float32(part) for part in value) if isinstance(value, (tuple, list)) else value


def result_types(name, change=lambda value: value, precision="bf16", **options):
    with FakeTensorMode(), cuda_autocast(precision):
        arguments = [change(value) for value in arguments_of(name)]
        with torch.autocast("cpu", dtype=lists.HALF_TYPES[precision]):
            result = lists._operator(name)(*arguments, **options)
    return {tensor.dtype for tensor in floating(result)}


# CUDA's own kernels, which have none for the tensors here; their composite callers are on the list too.
NOT_HERE = {
    "_convolution.deprecated",
    "cudnn_convolution",
    "cudnn_convolution_transpose",
    "_thnn_fused_lstm_cell",
    "_thnn_fused_gru_cell",
    "_scaled_dot_product_flash_attention",
}


@pytest.mark.parametrize("name", [name for name in lists.LOWER if name not in NOT_HERE])
def test_what_runs_in_half_precision(name):
    assert result_types(name, in_float32) == {HALF}


@pytest.mark.parametrize("name", [*lists.FLOAT, *lists.FLOAT_RESULT, *lists.FLOAT_OVERLOAD])
def test_what_runs_in_float32(name):
    assert result_types(name) == {torch.float32}


@pytest.mark.parametrize("name", lists.FLOAT_RESULT)
def test_a_type_that_the_caller_named_stays(name):
    assert result_types(name, dtype=HALF) == {HALF}


@pytest.mark.parametrize("name", lists.WIDEST)
def test_what_runs_in_the_widest_type(name):
    wide = iter([False, True, True, True])

    def all_but_the_first(value):
        return in_float32(value) if floating(value) and next(wide) else value

    assert result_types(name) == {HALF}
    assert result_types(name, all_but_the_first) == {torch.float32}


def test_what_a_card_refuses():
    with pytest.raises(RuntimeError, match="unsafe to autocast"):
        result_types("binary_cross_entropy")


@pytest.mark.parametrize("name", ["gelu", "tanh", "sigmoid", "silu", "abs"])
def test_what_is_on_no_list_keeps_its_type(name):
    assert result_types(name) == {HALF}
    assert result_types(name, in_float32) == {torch.float32}


def test_the_lists_are_torchs_own():
    """Of the header that every wheel carries, and of the kernels that are registered for CUDA even without one."""
    header = Path(torch.__file__).parent / "include/ATen/autocast_mode.h"
    macros = re.findall(r"#define AT_FORALL_(\w+)\(_\) (.*?)\n\n", header.read_text() + "\n\n", re.DOTALL)
    found = {name: re.findall(r"_\((\w+)(?:, *(\w+))?\)", body) for name, body in macros}
    names = {macro: sorted(f"{op}.{overload}".rstrip(".") for op, overload in ops) for macro, ops in found.items()}
    assert names["LOWER_PRECISION_FP"] == sorted(
        set(lists.LOWER) - {"cudnn_convolution", "cudnn_convolution_transpose"}
    )
    assert names["FP32"] == sorted(lists.FLOAT)
    assert names["FP32_SET_OPT_DTYPE"] == sorted(lists.FLOAT_RESULT)
    assert names["PROMOTE"] == sorted(lists.WIDEST)
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    registered = {name for name in torch._C._dispatch_get_all_op_names() if has(name, "AutocastCUDA")}
    ours = [*lists.LOWER, *lists.FLOAT, *lists.FLOAT_RESULT, *lists.FLOAT_OVERLOAD, *lists.WIDEST, lists.BANNED]
    assert {name.removeprefix("aten::") for name in registered if name.startswith("aten::")} == set(ours)
