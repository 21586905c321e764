"""Sorted for speed, put back in the data's order; metrics by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from launcher.evaluate import predict
from launcher.tasks.classification_metrics import multi_label, regression, single_label

HELD = {"validation": {"share": 0.5}}


@pytest.mark.parametrize("uniform", [False, True])
def test_predictions_stand_in_the_datas_order(build, uniform):
    strategies = {"uniform_dynamic_padding": uniform, "gradient_accumulation": {"tokens": 96}}
    session = build(data=HELD, strategies=strategies)
    examples, cutter = session.validation
    logits = predict(session, examples, cutter)
    model = session.accelerator.unwrap_model(session.model).eval()
    for index in range(len(examples)):
        ids = torch.tensor([examples.tokens[index]["input_ids"]])
        with torch.no_grad():
            alone = model(input_ids=ids).logits.numpy()[0]
        assert np.allclose(logits[index], alone, atol=1e-5)


def test_evaluation_keeps_the_memory_of_trainings_largest_micro_batch(build):
    session = build(
        data=HELD, strategies={"uniform_dynamic_padding": True, "gradient_accumulation": {"micro_batch": 2}}
    )
    examples, cutter = session.validation
    worst = session.cutter.worst(24).examples
    limit = len(worst) * session.cutter.padded_length(worst)
    for micro_batch in cutter.cut(np.arange(len(examples))).micro_batches:
        assert len(micro_batch.examples) <= 2
        assert len(micro_batch.examples) * cutter.padded_length(micro_batch.examples) <= limit


def test_evaluation_leaves_the_model_in_training_mode_less_what_is_frozen(build):
    session = build(data=HELD, strategies={"uniform_dynamic_padding": False, "freezing": {"embeddings": True}})
    predict(session, *session.validation)
    model = session.accelerator.unwrap_model(session.model)
    assert model.training
    assert not model.bert.embeddings.training


def test_single_label_metrics_by_hand():
    logits = np.log(np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]], np.float32))
    found = single_label(logits, np.array([0, 0, 1, 1]), ("a", "b"))
    assert found.metrics["accuracy"] == 0.75
    assert found.metrics["loss"] == pytest.approx(-np.log([0.9, 0.8, 0.7, 0.4]).mean(), rel=1e-6)
    assert found.metrics["macro_f1"] == pytest.approx((0.8 + 2 / 3) / 2)
    assert found.floor["accuracy"] == 0.5
    assert found.floor["macro_f1"] == pytest.approx((2 / 3) / 2)
    assert found.floor["loss"] == pytest.approx(np.log(2))
    assert found.floor_name == "always 'a'"
    assert found.per_class["b"] == {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "examples": 2}


def test_multi_label_metrics_by_hand():
    logits = np.array([[2.0, -2.0], [2.0, 2.0], [-2.0, 2.0]], np.float32)
    labels = np.array([[1, 0], [1, 1], [1, 1]], np.float32)
    found = multi_label(logits, labels, ("a", "b"))
    assert found.metrics["accuracy"] == pytest.approx(2 / 3)
    assert found.per_class["a"]["recall"] == pytest.approx(2 / 3)
    assert found.floor["accuracy"] == pytest.approx(2 / 3)
    assert found.floor_name == "always ['a', 'b']"


def test_regression_metrics_by_hand():
    found = regression(np.array([[1.0], [2.0], [4.0]]), np.array([1.0, 2.0, 3.0]), ())
    assert found.metrics["mean_squared_error"] == pytest.approx(1 / 3)
    assert found.metrics["mean_absolute_error"] == pytest.approx(1 / 3)
    assert found.metrics["pearson"] == pytest.approx(np.corrcoef([1, 2, 4], [1, 2, 3])[0, 1])
    assert found.floor["mean_squared_error"] == pytest.approx(2 / 3)
    assert found.floor["pearson"] == 0.0


def test_a_constant_answer_correlates_with_nothing_whatever_its_mean_rounds_to():
    truth = np.array([0.1206, 0.0345, 0.2, 0.1] * 3 + [0.3, 0.07], np.float32)
    assert regression(np.zeros((14, 1), np.float32), truth, ()).floor["pearson"] == 0.0


def test_the_floor_of_one_class_is_a_loss_of_zero_without_a_sign():
    floor = single_label(np.zeros((2, 2), np.float32), np.array([0, 0]), ("a", "b")).floor
    assert f"{floor['loss']:.4f}" == "0.0000"
