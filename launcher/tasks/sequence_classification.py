"""A text, or a pair of texts, to one class, several labels or a number."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from launcher.tasks import classification_metrics
from launcher.tasks.base import Evaluation, LabelError, Rows, Task

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

ProblemKind = Literal["single_label", "multi_label", "regression"]
_PROBLEM_TYPES: dict[ProblemKind, str] = {
    "single_label": "single_label_classification",
    "multi_label": "multi_label_classification",
    "regression": "regression",
}


_WHOLE = re.compile(r"-?[0-9]+\.0+")  # what pandas writes for whole numbers in a column with gaps


class SequenceClassification(Task):
    """Losses are those of transformers' heads at one big batch: cross-entropy, mean BCE over labels, squared error."""

    type: Literal["sequence_classification"] = Field(description="What the model learns to do")
    problem: ProblemKind = Field(default="single_label", description="One class, any number of labels, or a number")
    separator: str = Field(default=",", min_length=1, description="multi_label: between labels written in one text")

    columns: ClassVar[Mapping[str, Literal["required", "optional"]]] = {
        "text": "required",
        "text_pair": "optional",
        "label": "required",
    }
    auto_model: ClassVar[str] = "AutoModelForSequenceClassification"
    pipeline_tag: ClassVar[str] = "text-classification"

    def metric_names(self) -> dict[str, Literal["max", "min"]]:
        if self.problem == "regression":
            return {"loss": "min", "mean_squared_error": "min", "mean_absolute_error": "min", "pearson": "max"}
        return {"loss": "min", "accuracy": "max", "macro_f1": "max"}

    def usage(self, folder: str) -> str:
        every_label = ", top_k=None" if self.problem == "multi_label" else ""
        return f"pipeline({self.pipeline_tag!r}, {folder!r}{every_label})('your text')"

    def label_names(self, values: Sequence[object], known: Sequence[str]) -> tuple[str, ...]:
        if self.problem == "regression":
            return ()
        if known:
            return tuple(known)
        names = {name for value in values for name in self._names(value)}
        if all(name.removeprefix("-").isdecimal() for name in names):
            # 01 and 1 are equal as numbers: their letters decide, or each process would have an order of its own.
            return tuple(sorted(names, key=lambda name: (int(name), name)))
        return tuple(sorted(names))

    def config_changes(self, labels: Sequence[str]) -> dict[str, Any]:
        changes: dict[str, Any] = {"problem_type": _PROBLEM_TYPES[self.problem]}
        if self.problem == "regression":
            return changes | {"num_labels": 1}
        return changes | {
            "num_labels": len(labels),
            "id2label": dict(enumerate(labels)),
            "label2id": {name: index for index, name in enumerate(labels)},
        }

    def label(self, value: object, labels: Sequence[str]) -> object:
        if self.problem == "regression":
            return _number(value)
        names = self._names(value)
        if self.problem == "multi_label":
            return [float(label in names) for label in labels]
        return labels.index(names[0])

    def _names(self, value: object) -> list[str]:
        if self.problem == "multi_label":
            parts = value if isinstance(value, list | tuple) else str(value).split(self.separator)
            return [name for part in parts if (name := _name(part))]
        if isinstance(value, dict):
            raise LabelError(f"{value!r} is a mapping; a label is a text or a number")
        if isinstance(value, list | tuple):
            raise LabelError(f"{value!r} is a list; task.problem: multi_label takes several labels a row")
        return [_name(value)]

    def encode(self, rows: Rows, tokenizer: PreTrainedTokenizerBase, max_length: int | None) -> Rows:
        cut = {"truncation": True, "max_length": max_length} if max_length else {"truncation": False}
        encoded = tokenizer(rows["text"], rows.get("text_pair"), return_attention_mask=False, verbose=False, **cut)
        return dict(encoded)

    def label_tensor(self, labels: Sequence[Any]) -> Tensor:
        import torch

        return torch.tensor(labels, dtype=torch.long if self.problem == "single_label" else torch.float32)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        from torch.nn import functional

        logits = logits.float()
        if self.problem == "single_label":
            return functional.cross_entropy(logits, labels, reduction="sum")
        if self.problem == "regression":
            return functional.mse_loss(logits.squeeze(-1), labels, reduction="sum")
        return functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum") / labels.shape[-1]

    def evaluate(self, logits: np.ndarray, labels: np.ndarray, names: Sequence[str]) -> Evaluation:
        measure = {
            "single_label": classification_metrics.single_label,
            "multi_label": classification_metrics.multi_label,
            "regression": classification_metrics.regression,
        }[self.problem]
        return measure(logits, labels, names)


def _name(value: object) -> str:
    """1, 1.0, "1" and "1.0" are one label; True is "true"."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value).strip()
    return text.partition(".")[0] if _WHOLE.fullmatch(text) else text


def _number(value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise LabelError(f"{value!r} is not a number; task.problem: regression needs one") from None
    if not math.isfinite(number):
        raise LabelError(f"{value!r} is not a finite number")
    return number
