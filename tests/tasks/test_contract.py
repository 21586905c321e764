"""What every task promises: a loss that is a sum, metrics that it names, labels that it can read back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from launcher.tasks import ALL, SequenceClassification

NAMES = ("a", "b", "c")
# problem -> labels of four rows as data has them
LABELS = {
    "single_label": ["a", "b", "c", "a"],
    "multi_label": [["a"], ["b", "c"], "a,c", []],
    "regression": [0.5, "1.5", 2, -1.0],
}
each = pytest.mark.parametrize("problem", LABELS)


def task_of(problem):
    return SequenceClassification(type="sequence_classification", problem=problem)


def logits_for(problem):
    torch.manual_seed(0)
    return torch.randn(4, 1 if problem == "regression" else 3)


@each
def test_the_loss_of_a_batch_is_the_sum_of_the_losses_of_its_examples(problem):
    task, logits = task_of(problem), logits_for(problem)
    labels = task.label_tensor([task.label(value, NAMES) for value in LABELS[problem]])
    alone = [task.loss(logits[i : i + 1], labels[i : i + 1]) for i in range(4)]
    assert float(task.loss(logits, labels)) == pytest.approx(float(sum(alone)), rel=1e-6)
    assert task.loss(logits.half(), labels).dtype == torch.float32


@each
def test_an_evaluation_holds_the_metrics_that_the_task_names_and_their_floor(problem):
    task = task_of(problem)
    labels = np.array([task.label(value, NAMES) for value in LABELS[problem]])
    evaluation = task.evaluate(logits_for(problem).numpy(), labels, NAMES)
    assert list(evaluation.metrics) == list(task.metric_names())
    assert set(evaluation.floor) == set(evaluation.metrics)
    assert evaluation.metrics["loss"] == pytest.approx(
        float(task.loss(logits_for(problem), task.label_tensor(labels.tolist()))) / 4, rel=1e-5
    )


@each
def test_label_names_are_found_in_any_order_and_told_to_the_model(problem):
    task = task_of(problem)
    names = task.label_names(LABELS[problem], ())
    assert names == task.label_names(LABELS[problem][::-1], ())
    assert names == (() if problem == "regression" else NAMES)
    assert task.config_changes(names)["num_labels"] == (1 if problem == "regression" else 3)


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_fields_are_described_and_survive_json(cls):
    task = cls(type=cls.model_fields["type"].annotation.__args__[0])
    assert cls.model_validate_json(task.model_dump_json()) == task
    assert all(field.description for field in cls.model_fields.values())


def test_one_label_may_be_written_in_several_ways():
    task = task_of("single_label")
    assert task.label_names([1, 1.0, "1", " 1 ", 0], ()) == ("0", "1")
    assert task.label_names([10, 9], ()) == ("9", "10")
    assert task.label_names([True, False], ()) == ("false", "true")
