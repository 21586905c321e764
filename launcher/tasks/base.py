"""The contract of a task: one file, one class; from named columns to features, loss and metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

Rows = dict[str, list[Any]]


class LabelError(ValueError):
    """A row's value that the task cannot use; the message says what is wrong with it."""


@dataclass(frozen=True)
class Evaluation:
    """`metrics` by name; `floor` is what the best constant answer scores on the same metrics."""

    metrics: dict[str, float]
    floor: dict[str, float]
    per_class: dict[str, dict[str, float]] = field(default_factory=dict)
    # What the constant answer is, in words.
    floor_name: str = ""


class Task(BaseModel, ABC):
    """Fields are what the recipe may say under `task`. Tensors are one micro-batch's, `count` of examples first."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    # The task's word for a column -> whether a row can do without it.
    columns: ClassVar[Mapping[str, Literal["required", "optional"]]]
    # The transformers class that loads the model.
    auto_model: ClassVar[str]
    # The name under which `transformers.pipeline` runs it.
    pipeline_tag: ClassVar[str]

    @abstractmethod
    def metric_names(self) -> dict[str, Literal["max", "min"]]:
        """Metrics that an evaluation gives, and which way is better."""

    @abstractmethod
    def usage(self, folder: str) -> str:
        """One line of Python that runs the trained model."""

    @abstractmethod
    def label_names(self, values: Sequence[object], known: Sequence[str]) -> tuple[str, ...]:
        """Names in the order of the model's outputs, from all label values; `known` is the data set's own order."""

    @abstractmethod
    def config_changes(self, labels: Sequence[str]) -> dict[str, Any]:
        """What the model's config must say for these labels."""

    @abstractmethod
    def label(self, value: object, labels: Sequence[str]) -> object:
        """A row's label as the loss needs it; LabelError where it cannot be one."""

    @abstractmethod
    def encode(self, rows: Rows, tokenizer: PreTrainedTokenizerBase, max_length: int | None) -> Rows:
        """Token columns of these rows, cut at `max_length` tokens (None: whole)."""

    @abstractmethod
    def label_tensor(self, labels: Sequence[Any]) -> Tensor:
        """The labels of one micro-batch."""

    @abstractmethod
    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Sum, not mean, over the micro-batch's examples: shape (), float32."""

    @abstractmethod
    def evaluate(self, logits: np.ndarray, labels: np.ndarray, names: Sequence[str]) -> Evaluation:
        """Metrics of all validation examples; logits (examples, outputs) float32."""
