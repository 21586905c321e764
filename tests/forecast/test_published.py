"""Counters of a GPU that others published: batch 2, length 16, float32, Trainer's foreach AdamW, torch 2.2, early 2024.

At this size the fullest moment is the update: weights, gradients, two states and foreach's copy decide `allocated`; the
order of all requests, forward and backward included, decides `reserved`. Activations by themselves are not put to the
test here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from torch.nn import functional
from transformers import BertConfig, GPT2Config, RobertaConfig

from launcher.check import check
from launcher.devices import find_device
from launcher.forecast import trace
from launcher.forecast.peak import Forecast
from launcher.model import new_model
from launcher.plan import make_plan
from launcher.tasks import SequenceClassification
from tests.conftest import make_tiny_model

LENGTH = 16
# These models had no other attention then. With SDPA `allocated` is the same, `reserved` 2 MiB more for GPT-2.
EAGER = {"_attn_implementation": "eager"}
ALLOCATED_TOLERANCE = 0.001  # found: +0.05, +0.04 and -0.05 %
RESERVED_TOLERANCE = 0.002  # found: exact, exact and -0.15 %


class EagerClassification(SequenceClassification):
    def config_changes(self, labels: Sequence[str]) -> dict[str, Any]:
        return super().config_changes(labels) | EAGER


class MaskedLanguage(EagerClassification):
    """A label at every token; the loss is that of transformers' heads, as the sum over the examples."""

    auto_model: ClassVar[str] = "AutoModelForMaskedLM"

    def label(self, value: object, labels: Any) -> object:
        return [5] * LENGTH

    def loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        flat = logits.float().view(-1, logits.shape[-1])
        return functional.cross_entropy(flat, labels.reshape(-1)) * len(labels)


class CausalLanguage(MaskedLanguage):
    """In the form of 2024: logits less the last token's, copied."""

    auto_model: ClassVar[str] = "AutoModelForCausalLM"

    def loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return super().loss(logits[..., :-1, :].contiguous(), labels[..., 1:])


def with_foreach(job):
    plan = make_plan(job)
    plan.settings.optimizer_options = {"foreach": True}
    return plan


def with_masks(recipe, config):
    """GPT-2 as it was: every layer held a causal mask of all positions, in bools (today one is made in forward)."""
    model = new_model(recipe, config)
    for layer in model.transformer.h:
        mask = torch.ones(1, 1, config.n_positions, config.n_positions, dtype=torch.bool)
        layer.attn.register_buffer("bias", mask, persistent=False)
    return model


@pytest.fixture
def traced(recipe, tmp_path, monkeypatch):
    """Of the published run on any card: with no half precision all take the same kernels."""
    from accelerate.state import AcceleratorState

    def run(config: Any, task: type[SequenceClassification], make_model: Any = new_model) -> Forecast:
        config.save_pretrained(make_tiny_model(tmp_path / "model"))
        rows = [{"text": " ".join(["the"] * (LENGTH - 2)), "label": label} for label in ("a", "b")] * 2
        data = tmp_path / "sixteen.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        model = {"source": str(tmp_path / "model"), "config": {}}
        path = recipe(model=model, data={"train": str(data)}, training={"batch_size": 2})
        job = check(path)
        job = replace(job, recipe=job.recipe.model_copy(update={"task": task(type="sequence_classification")}))
        monkeypatch.setattr(trace, "make_plan", with_foreach)
        monkeypatch.setattr("launcher.forecast.fake_run.new_model", make_model)
        AcceleratorState._reset_state(reset_partial_state=True)
        return trace.trace(job, find_device("V100"))

    return run


def test_bert_base_masked_language_model(traced):
    """The output layer is the embedding: counted once, or the forecast were 21 % too high."""
    answer = traced(BertConfig(), MaskedLanguage)
    assert answer.allocated == pytest.approx(2_195_345_408, rel=ALLOCATED_TOLERANCE)
    assert answer.reserved == pytest.approx(2_497_708_032, rel=RESERVED_TOLERANCE)


def test_roberta_base_sequence_classification(traced):
    config = RobertaConfig(vocab_size=50265, max_position_embeddings=514, type_vocab_size=1)
    answer = traced(config, EagerClassification)
    assert answer.allocated == pytest.approx(2_497_900_032, rel=ALLOCATED_TOLERANCE)
    assert answer.reserved == pytest.approx(2_707_423_232, rel=RESERVED_TOLERANCE)


def test_gpt2_causal_language_model(traced):
    """Without the masks of its time the forecast is 0.55 % and 0.58 % lower."""
    answer = traced(GPT2Config(), CausalLanguage, with_masks)
    assert answer.allocated == pytest.approx(2_506_736_640, rel=ALLOCATED_TOLERANCE)
    assert answer.reserved == pytest.approx(2_894_069_760, rel=RESERVED_TOLERANCE)
