"""A world of tensors with shapes and no contents, in which the product's own code runs as it stands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from transformers.masking_utils import _ignore_causal_mask_sdpa

from launcher.errors import ForecastError

# Elements. Token ids, masks and what follows from them alone keep their values up to here: 24 x 400 x 400 is under it.
MOST_KNOWN = 1 << 22


@contextmanager
def fake_world() -> Iterator[None]:
    """Inside, tensors are fake.

    The batch's own values are known, as encoder-decoders need them: they look for each text's end. Of what follows from
    weights no value is; where one is asked for and any does, it is answered, and all else is a ForecastError.
    """
    with ExitStack() as stack:
        # transformers looks at position ids for packed sequences, of which there are none here.
        stack.enter_context(patch("transformers.masking_utils.find_packed_sequence_indices", lambda *_, **__: None))
        # bitsandbytes computes its table of 256 code points from values; their number is all that counts.
        stack.enter_context(patch("bitsandbytes.functional.create_dynamic_map", lambda *_, **__: torch.zeros(256)))
        # Adafactor's own rate follows from the size of its weights; it decides numbers, not shapes.
        stack.enter_context(patch("transformers.optimization.Adafactor._get_lr", staticmethod(lambda *_: 1e-3)))
        # How many tokens an expert gets decides no shape, but torch's fake kernel refuses float32 (2.13). transformers'
        # stand-in for it returns the same tensors.
        stack.enter_context(patch("transformers.integrations.moe._can_use_grouped_mm", lambda *_: False))
        stack.enter_context(patch("transformers.masking_utils._ignore_causal_mask_sdpa", _can_skip_causal_mask))
        stack.enter_context(patch("torch._subclasses.fake_tensor.CONSTANT_NUMEL_LIMIT", MOST_KNOWN))
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        try:
            yield
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            problem = f"{error.func} asks this model for values that only a real run has, and its memory hangs on them"
            raise ForecastError("forecast", [problem]) from error


def _can_skip_causal_mask(padding_mask: FakeTensor | None, *rest: Any, **options: Any) -> Any:
    """As transformers decides for a batch with padding in it, which is the worst that the data can bring.

    A mask that is not the batch's was made by the model for its decoder, of ones: there is no padding in that.
    """
    is_own = padding_mask is not None and padding_mask.constant is None
    return _ignore_causal_mask_sdpa(None if is_own else padding_mask, *rest, **options)
