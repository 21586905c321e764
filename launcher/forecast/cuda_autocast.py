"""Autocast as a CUDA card has it, on tensors of the CPU: other operators are kept in float32 than on a CPU.

The lists are those of torch's aten/src/ATen/autocast_mode.h (AT_FORALL_*), with its casting policies.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

Kernel = Callable[..., Any]


def _names(text: str) -> list[str]:
    return text.split()


KEY = "AutocastCPU"
HALF_TYPES: dict[str, torch.dtype] = {"fp16": torch.float16, "bf16": torch.bfloat16}
# Inputs are cast to half precision, weights once a forward.
LOWER = _names("""
    _convolution _convolution.deprecated conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
    conv_transpose3d.input convolution cudnn_convolution cudnn_convolution_transpose prelu addmm addmv addr matmul
    einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell
    _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell _scaled_dot_product_flash_attention
    scaled_dot_product_attention
""")
# Inputs are cast to float32.
FLOAT = _names("""
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
    pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim
    nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d
    hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss
    multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits
    dist pdist cdist renorm logsumexp upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d
    _upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d
    _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa
""")
# The operator makes float32 of half precision by itself, unless the caller named a type.
FLOAT_RESULT = _names("""
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
    linalg_matrix_norm.str_ord sum sum.dim_IntList
""")
# The same with an overload that takes the type.
FLOAT_OVERLOAD = {"norm.Scalar": "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype"}
# Inputs are cast to the widest of their types.
WIDEST = _names("addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add")
BANNED = "binary_cross_entropy"
# On CUDA these read fp16 and write float32 in one kernel, and bf16 through a copy (aten/src/ATen/native/SoftMax.cpp).
FUSED = {"softmax.int": torch.ops.aten._softmax, "log_softmax.int": torch.ops.aten._log_softmax}


@contextmanager
def cuda_autocast(precision: Literal["fp16", "bf16"]) -> Iterator[None]:
    """Inside, Accelerate's autocast for the CPU runs by CUDA's lists.

    The gradient scaler of fp16 is left out: it multiplies the loss, unscales gradients in place and keeps a few
    scalars (torch/amp/grad_scaler.py), so it takes no memory that counts.
    """
    weights = _Weights()
    clear = torch.clear_autocast_cache

    def clear_both() -> None:
        weights.casts.clear()
        clear()

    def half(*_: Any) -> torch.autocast:
        return torch.autocast("cpu", dtype=HALF_TYPES[precision])

    # Accelerate's own refuses fp16 on a CPU.
    accelerates = patch("accelerate.accelerator.get_mixed_precision_context_manager", half)
    with accelerates, patch.object(torch, "clear_autocast_cache", clear_both), _kernels(weights):
        yield


class _Weights:
    """Casts of weights, each made once within an autocast; as cached_cast in aten/src/ATen/autocast_mode.cpp."""

    def __init__(self) -> None:
        # By the source's id; the source is held, so that no other tensor takes its id.
        self.casts: dict[int, tuple[Tensor, Tensor]] = {}

    def cast(self, value: Any, dtype: torch.dtype) -> Any:
        """Tensors of another floating type; all else, and float64, is left as it is."""
        if not _is_eligible(value) or value.dtype == dtype:
            return value
        is_weight = value.dtype == torch.float32 and value.requires_grad and value.is_leaf and not value._is_view()
        if not is_weight or dtype != torch.get_autocast_dtype("cpu") or not torch.is_autocast_cache_enabled():
            return value.to(dtype)
        if id(value) not in self.casts:
            self.casts[id(value)] = value, value.to(dtype)
        return self.casts[id(value)][1]


def _is_eligible(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.dtype != torch.float64


@contextmanager
def _kernels(weights: _Weights) -> Iterator[None]:
    """Registers all of CUDA's lists in the place of the CPU's."""

    def lower(func: Kernel) -> Kernel:
        return lambda *args, **kwargs: func(*_cast(weights, torch.get_autocast_dtype("cpu"), args), **kwargs)

    def full(func: Kernel) -> Kernel:
        return lambda *args, **kwargs: func(*_cast(weights, torch.float32, args), **kwargs)

    def widest(func: Kernel) -> Kernel:
        return lambda *args, **kwargs: func(*_cast(weights, _widest(args), args), **kwargs)

    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    kernels = dict.fromkeys(LOWER, lower) | dict.fromkeys(FLOAT, full) | dict.fromkeys(WIDEST, widest)
    made = {name: make(_operator(name)) for name, make in kernels.items()}
    made |= {name: _float_result(name) for name in FLOAT_RESULT}
    made |= {name: _float_overload(name, typed) for name, typed in FLOAT_OVERLOAD.items()} | {BANNED: _banned}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Warning only once for all operators")  # that there was a kernel before
            for name in _cpu_names():
                library.impl(name, torch.library.fallthrough_kernel, KEY, allow_override=True)
            for name, kernel in made.items():
                library.impl(name, _below(kernel), KEY, allow_override=True)
        yield
    finally:
        library._destroy()


@cache
def _cpu_names() -> tuple[str, ...]:
    """What is on the CPU's lists and not on CUDA's."""
    own = {*LOWER, *FLOAT, *FLOAT_RESULT, *FLOAT_OVERLOAD, *WIDEST, BANNED}
    names = [name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return tuple(name for name in names if name not in own and has(f"aten::{name}", KEY))


def _operator(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _below(kernel: Kernel) -> Kernel:
    """What an operator calls in its turn is not cast again."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)):
            return kernel(*args, **kwargs)

    return call


def _cast(weights: _Weights, dtype: torch.dtype, args: Any) -> Any:
    return tree_map(lambda value: weights.cast(value, dtype), args)


def _widest(args: Any) -> torch.dtype:
    types = [value.dtype for value in tree_leaves(args) if _is_eligible(value)]
    return torch.float32 if torch.float32 in types else torch.get_autocast_dtype("cpu")


def _float_result(name: str) -> Kernel:
    func, fused = _operator(name), FUSED.get(name)

    def kernel(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        # Of all these only softmax takes its type by position, as the last of two.
        dtype = args[1] if fused is not None and len(args) > 1 else kwargs.get("dtype")
        if not _is_eligible(tensor):
            return func(tensor, *args, **kwargs)
        if fused is None:
            return func(tensor, *args, **kwargs | {"dtype": dtype or torch.float32})
        if tensor.dtype == torch.float16 and dtype in (None, torch.float32):
            return fused(tensor, args[0], True)
        return func(tensor, args[0], dtype or torch.float32)

    return kernel


def _float_overload(name: str, typed: str) -> Kernel:
    func = _operator(typed)
    defaults = [argument.default_value for argument in _operator(name)._schema.arguments[1:]]

    def kernel(tensor: Tensor, *args: Any) -> Any:
        dtype = torch.float32 if _is_eligible(tensor) else tensor.dtype
        return func(tensor, *args, *defaults[len(args) :], dtype=dtype)

    return kernel


def _banned(*_: Any, **__: Any) -> Any:
    raise RuntimeError("torch.nn.functional.binary_cross_entropy is unsafe to autocast on CUDA, which refuses it")
