"""A model's folder read back: what lies on the disk must be what the model holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.disk import writing
from launcher.errors import CheckpointError, SaveError
from launcher.tensor_files import TensorReader

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


def tensors_to_write(model: PreTrainedModel, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """By the names and in the form in which `save_pretrained` writes them: no two share memory."""
    from transformers.core_model_loading import revert_weight_conversion
    from transformers.modeling_utils import remove_tied_weights_from_state_dict

    # These two calls of `save_pretrained` (transformers 5.24) decide what is in its files; here, so that it is known.
    alone = remove_tied_weights_from_state_dict(dict(weights), model)
    return dict(revert_weight_conversion(model, alone))


def compare_with_disk(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Reads one tensor at a time, from the disk. SaveError names every tensor that is not there as it is here."""
    files = sorted(folder.glob("*.safetensors"))
    with writing(folder, size_of(tensors)):
        for file in files:
            flush(file)
    try:
        written = TensorReader(folder, [file.name for file in files])
    except CheckpointError as error:
        raise SaveError(error.where, [f"cannot be read back: {problem}" for problem in error.problems]) from None
    shapes = written.shapes()
    problems = [f"{name} was to be written and is not there" for name in tensors if name not in shapes]
    problems += [f"{name} is there and was not to be written" for name in shapes if name not in tensors]
    for name in tensors.keys() & shapes.keys():
        if not is_same(written[name], tensors[name]):
            problems.append(f"{name} reads back with other values than the model's")
    written.close()
    if problems:
        raise SaveError(str(folder), [*sorted(problems), "do not trust this disk: write output.folder to another one"])


def is_same(some: Tensor, other: Tensor) -> bool:
    """Bit for bit: what is no number equals itself here. `some` is on the host."""
    import torch

    if (some.dtype, some.shape) != (other.dtype, other.shape):
        return False
    bits, others = (one.detach().cpu().contiguous().flatten().view(torch.uint8) for one in (some, other))
    return torch.equal(bits, others)


def size_of(tensors: dict[str, Tensor]) -> int:
    """Bytes."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def flush(file: Path) -> None:
    """To the disk and out of the cache: network disks say only here that they are full, and it is read from there."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
