"""Promise 1 on one process: however an update is cut and padded, its gradient is that of one big batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import launcher.train
from tests.gradients import big_batch_gradient, relative_error, update_gradient

TOLERANCE = 1e-5  # float32 sums in another order
WHOLE_UPDATE = np.arange(24)
CUTS = {
    "whole": {},
    "micro_batch_1": {"gradient_accumulation": {"micro_batch": 1}},
    "micro_batch_3": {"gradient_accumulation": {"micro_batch": 3}},
    "micro_batch_8": {"gradient_accumulation": {"micro_batch": 8}},
    "steps_4": {"gradient_accumulation": {"steps": 4}},
    "tokens_64": {"gradient_accumulation": {"tokens": 64}},
}
PADDINGS = {
    "fixed": {},
    "dynamic": {"dynamic_padding": True},
    "dynamic_of_8": {"dynamic_padding": {"multiple_of": 8}},
    "uniform": {"uniform_dynamic_padding": True},
}
PROBLEMS = {
    "single_label": {"columns": {"label": "label"}},
    "pair": {"columns": {"text_pair": "text_pair", "label": "label"}},
    "multi_label": {"columns": {"label": "labels"}},
    "regression": {"columns": {"label": "score"}},
}
OFF = {"uniform_dynamic_padding": False}


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("cut", CUTS)
def test_gradient_is_that_of_one_big_batch(build, cut, padding):
    session = build(strategies=OFF | CUTS[cut] | PADDINGS[padding])
    expected = big_batch_gradient(session, WHOLE_UPDATE)
    assert relative_error(update_gradient(session, WHOLE_UPDATE), expected) < TOLERANCE


@pytest.mark.parametrize("problem", PROBLEMS)
def test_gradient_is_exact_for_every_problem(build, problem):
    kind = "single_label" if problem == "pair" else problem
    strategies = {"gradient_accumulation": {"tokens": 96}, "uniform_dynamic_padding": True}
    session = build(task={"problem": kind}, data=PROBLEMS[problem], strategies=strategies)
    expected = big_batch_gradient(session, WHOLE_UPDATE)
    assert relative_error(update_gradient(session, WHOLE_UPDATE), expected) < TOLERANCE


@pytest.mark.parametrize("padding", PADDINGS)
def test_gradient_is_exact_with_checkpointing(build, padding):
    strategies = OFF | {"gradient_checkpointing": True, "gradient_accumulation": {"micro_batch": 3}}
    session = build(strategies=strategies | PADDINGS[padding])
    expected = big_batch_gradient(session, WHOLE_UPDATE)
    assert relative_error(update_gradient(session, WHOLE_UPDATE), expected) < TOLERANCE


@pytest.mark.parametrize("size", [1, 7, 16])
@pytest.mark.parametrize("cut", ["micro_batch_3", "tokens_64"])
def test_last_update_of_an_epoch_counts_its_own_examples(build, cut, size):
    session = build(strategies={"uniform_dynamic_padding": True} | CUTS[cut])
    last = np.arange(40, 40 + size)
    assert relative_error(update_gradient(session, last), big_batch_gradient(session, last)) < TOLERANCE


def test_a_mean_of_means_would_be_caught(build, monkeypatch):
    """What plain accumulation does: each micro-batch's mean, divided by the number of micro-batches."""

    def mean_of_means(session, micro_batch, examples):
        batch = session.collator(
            session.examples, micro_batch.examples, session.cutter.padded_length(micro_batch.examples)
        )
        logits = session.model(**batch.inputs).logits
        loss = session.plan.recipe.task.loss(logits, batch.labels) / len(micro_batch.examples) / number
        session.accelerator.backward(loss)
        return loss.detach()

    session = build(strategies={"uniform_dynamic_padding": True, "gradient_accumulation": {"tokens": 64}})
    number = len(session.cutter.cut(WHOLE_UPDATE).micro_batches)
    expected = big_batch_gradient(session, WHOLE_UPDATE)
    monkeypatch.setattr(launcher.train, "backward", mean_of_means)
    assert relative_error(update_gradient(session, WHOLE_UPDATE), expected) > 1000 * TOLERANCE


def test_the_reported_loss_is_the_mean_over_the_update(build):
    from launcher.train import train_update

    session = build(strategies={"uniform_dynamic_padding": True, "gradient_accumulation": {"tokens": 64}})
    model = session.accelerator.unwrap_model(session.model)
    batch = session.collator(session.examples, WHOLE_UPDATE, 64)
    with torch.no_grad():
        expected = float(model(**batch.inputs, labels=batch.labels).loss)
    result = train_update(session, session.cutter.cut(WHOLE_UPDATE))
    assert float(result.loss) == pytest.approx(expected, rel=1e-5)


def test_rehearsal_leaves_no_trace(build):
    """Neither a gradient nor a changed weight nor other random numbers."""
    from launcher.train import rehearse

    session = build(model={"config": {"hidden_dropout_prob": 0.1}})
    session.set_train_mode()
    model = session.accelerator.unwrap_model(session.model)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    state = torch.get_rng_state()
    rehearse(session)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], p) and p.grad is None for name, p in model.named_parameters())
