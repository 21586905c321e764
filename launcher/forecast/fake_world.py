"""A world of tensors with shapes and no contents, in which the product's own code runs as it stands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensorMode


@contextmanager
def fake_world() -> Iterator[None]:
    """Inside, tensors are fake. What asks for a value, where any value does, is answered; all else raises."""
    with ExitStack() as stack:
        # transformers looks at position ids for packed sequences, of which there are none here.
        stack.enter_context(patch("transformers.masking_utils.find_packed_sequence_indices", lambda *_, **__: None))
        # bitsandbytes computes its table of 256 code points from values; their number is all that counts.
        stack.enter_context(patch("bitsandbytes.functional.create_dynamic_map", lambda *_, **__: torch.zeros(256)))
        # Adafactor's own rate follows from the size of its weights; it decides numbers, not shapes.
        stack.enter_context(patch("transformers.optimization.Adafactor._get_lr", staticmethod(lambda *_: 1e-3)))
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        yield
