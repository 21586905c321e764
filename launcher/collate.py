"""Token lists of one micro-batch -> padded tensors on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from launcher.data import Examples
from launcher.tasks.base import Task

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Batch:
    """`inputs` (examples, length) as the model's forward names them; `labels` as the task's loss takes them."""

    inputs: dict[str, Tensor]
    labels: Tensor


@dataclass(frozen=True)
class Collator:
    """Pads on the side that the tokenizer pads on."""

    tokenizer: PreTrainedTokenizerBase
    task: Task
    device: torch.device

    def __call__(self, examples: Examples, indices: np.ndarray, length: int) -> Batch:
        """The examples at `indices`, each `length` tokens long with its padding."""
        rows = examples.tokens[indices]
        inputs = {name: self._pad(lists, self._filler(name), length) for name, lists in rows.items()}
        mask = [[1] * len(ids) for ids in rows["input_ids"]]
        inputs["attention_mask"] = self._pad(mask, 0, length)
        labels = self.task.label_tensor([examples.labels[i] for i in indices])
        return Batch(inputs, labels.to(self.device))

    def _filler(self, name: str) -> int:
        fillers = {"input_ids": self.tokenizer.pad_token_id, "token_type_ids": self.tokenizer.pad_token_type_id}
        return int(fillers[name])

    def _pad(self, lists: list[list[int]], filler: int, length: int) -> Tensor:
        import torch

        table = np.full((len(lists), length), filler, np.int64)
        for row, values in zip(table, lists, strict=True):
            if self.tokenizer.padding_side == "right":
                row[: len(values)] = values
            else:
                row[length - len(values) :] = values
        return torch.from_numpy(table).to(self.device, non_blocking=True)
