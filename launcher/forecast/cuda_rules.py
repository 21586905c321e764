"""Where CUDA allocates other things than a CPU does: attention kernels, dropout masks and autocast's lists."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional

from launcher.forecast.cuda_autocast import cuda_autocast
from launcher.settings import Precision

FLASH_CAPABILITY = (8, 0)  # flash attention needs Ampere; the memory-efficient kernel runs from 5.0 on
FLASH_HEAD = 256  # its largest head dimension
BIAS_ALIGNMENT = 16  # elements: the efficient kernel wants a bias whose rows start at such a place


@contextmanager
def cuda_rules(capability: tuple[int, int], precision: Precision) -> Iterator[None]:
    """Inside, fake tensors of the CPU are born as a card of this compute capability would have them.

    For fp16 and bf16 Accelerate must have been started in bf16, the only half precision it has for a CPU.
    """

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        query, key, value = _autocast(query), _autocast(key), _autocast(value)
        attn_mask = _autocast(attn_mask) if attn_mask is not None else None
        if enable_gqa and key.size(-3) != query.size(-3):
            times = query.size(-3) // key.size(-3)
            key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
        is_half = query.dtype in (torch.float16, torch.bfloat16)
        if is_half and attn_mask is None and query.size(-1) <= FLASH_HEAD and capability >= FLASH_CAPABILITY:
            flash = torch.ops.aten._scaled_dot_product_flash_attention
            return flash(query, key, value, dropout_p, is_causal, scale=scale)[0]  # type: ignore[no-any-return]
        bias = _bias(attn_mask, query, key) if attn_mask is not None else None
        efficient = torch.ops.aten._scaled_dot_product_efficient_attention
        with_gradient = torch.is_grad_enabled()
        result = efficient(query, key, value, bias, with_gradient, dropout_p, is_causal, scale=scale)
        return result[0]  # type: ignore[no-any-return]

    with (
        patch.object(functional, "scaled_dot_product_attention", attention),
        patch.object(functional, "dropout", _dropout),
        nullcontext() if precision == "no" else cuda_autocast(precision),
    ):
        yield


def _autocast(tensor: Tensor) -> Tensor:
    """As autocast casts what goes into attention; a mask of truth values stays one."""
    if not torch.is_autocast_enabled("cpu") or not tensor.is_floating_point():
        return tensor
    return tensor.to(torch.get_autocast_dtype("cpu"))


def _bias(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The mask as torch hands it to the kernel: added, aligned, expanded without a copy."""
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), -math.inf)
    length = mask.size(-1)
    if length % BIAS_ALIGNMENT:
        mask = functional.pad(mask, (0, BIAS_ALIGNMENT - length % BIAS_ALIGNMENT))[..., :length]
    return mask.expand(query.size(0), query.size(1), query.size(-2), key.size(-2))


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """CUDA's keeps one byte an element for backward, the CPU's a float."""
    if not training or p == 0:
        return input
    return torch.native_dropout(input, p, True)[0]
