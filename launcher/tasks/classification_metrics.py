"""Accuracy, macro F1 and errors, always beside what the best constant answer would score."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from launcher.tasks.base import Evaluation


def single_label(logits: np.ndarray, labels: np.ndarray, names: Sequence[str]) -> Evaluation:
    """logits (examples, classes), labels (examples,) of class numbers."""
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    loss = float((np.log(np.exp(shifted).sum(-1)) - shifted[np.arange(len(labels)), labels]).mean())
    counts = np.bincount(labels, minlength=len(names))
    majority = int(counts.argmax())
    metrics, per_class = _scores(labels, logits.argmax(-1), names)
    floor, _ = _scores(labels, np.full_like(labels, majority), names)
    shares = counts[counts > 0] / len(labels)
    floor["loss"] = float((shares * np.log(1 / shares)).sum())  # 0, not -0, where there is one class
    return Evaluation({"loss": loss, **metrics}, floor, per_class, f"always {names[majority]!r}")


def multi_label(logits: np.ndarray, labels: np.ndarray, names: Sequence[str]) -> Evaluation:
    """logits and labels (examples, labels); accuracy counts rows that are right in every label."""
    scores = logits.astype(np.float64)
    loss = float((np.logaddexp(0, scores) - labels * scores).mean())
    truth = labels.astype(np.int64)
    rows, counts = np.unique(truth, axis=0, return_counts=True)
    majority = rows[counts.argmax()]
    metrics, per_class = _scores(truth, (logits > 0).astype(np.int64), names)
    floor, _ = _scores(truth, np.broadcast_to(majority, truth.shape), names)
    share = truth.mean(0).clip(1e-12, 1 - 1e-12)
    floor["loss"] = float(-(share * np.log(share) + (1 - share) * np.log(1 - share)).mean())
    chosen = [name for name, on in zip(names, majority, strict=True) if on]
    return Evaluation({"loss": loss, **metrics}, floor, per_class, f"always {chosen}")


def regression(logits: np.ndarray, labels: np.ndarray, names: Sequence[str]) -> Evaluation:
    """logits (examples, 1), labels (examples,)."""
    predictions, truth = logits[:, 0].astype(np.float64), labels.astype(np.float64)
    constant = np.full_like(truth, truth.mean())
    return Evaluation(_errors(predictions, truth), _errors(constant, truth), {}, f"always the mean {truth.mean():.4g}")


def _errors(predictions: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    error = predictions - truth
    squared = float((error**2).mean())
    # Constants by their range: their deviation from a rounded mean need not be 0.
    varies = np.ptp(predictions) > 0 and np.ptp(truth) > 0
    pearson = float(np.corrcoef(predictions, truth)[0, 1]) if varies else 0.0
    absolute = float(np.abs(error).mean())
    return {"loss": squared, "mean_squared_error": squared, "mean_absolute_error": absolute, "pearson": pearson}


def _scores(
    truth: np.ndarray, predictions: np.ndarray, names: Sequence[str]
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Accuracy and macro F1 over the classes that the truth or the predictions hold; and each class by itself."""
    from sklearn.metrics import accuracy_score, precision_recall_fscore_support

    precision, recall, f1, support = precision_recall_fscore_support(
        truth, predictions, labels=range(len(names)), zero_division=0
    )
    per_class = {
        name: {
            "precision": float(precision[index]),
            "recall": float(recall[index]),
            "f1": float(f1[index]),
            "examples": int(support[index]),
        }
        for index, name in enumerate(names)
    }
    present = [index for index in range(len(names)) if support[index] or _predicted(predictions, index)]
    macro = float(np.mean([f1[index] for index in present]))
    return {"accuracy": float(accuracy_score(truth, predictions)), "macro_f1": macro}, per_class


def _predicted(predictions: np.ndarray, index: int) -> bool:
    return bool(predictions[:, index].any()) if predictions.ndim == 2 else bool((predictions == index).any())
