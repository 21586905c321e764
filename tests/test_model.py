"""Whatever the files hold: float32 masters, no pickled code, labels in the model's own order, whole texts."""

from __future__ import annotations

import json
import logging
import shutil

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, RobertaConfig

from launcher.check import check
from launcher.errors import ModelError
from launcher.model import apply_labels, length_limit, load_config, load_model
from launcher.tasks import SequenceClassification


def loaded(recipe, folder, **model):
    job = check(recipe(model={"source": str(folder)} | model))
    config = load_config(job.recipe)
    apply_labels(config, job.recipe.task, ("bad", "good"))
    return load_model(job.recipe, config)


@pytest.fixture
def folder(tiny_model, tmp_path):
    return shutil.copytree(tiny_model, tmp_path / "model")


def test_a_float16_checkpoint_is_trained_in_float32(recipe, folder):
    AutoModelForSequenceClassification.from_pretrained(folder).half().save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float16"
    assert {p.dtype for p in loaded(recipe, folder).parameters()} == {torch.float32}


def test_pickled_weights_are_read_without_running_code(recipe, folder):
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    assert torch.equal(loaded(recipe, folder).classifier.weight, model.classifier.weight)


def test_a_pickle_that_would_run_code_is_refused(recipe, folder):
    class Attack:
        def __reduce__(self):
            return (exec, (f"open({str(folder / 'owned')!r}, 'w')",))

    (folder / "model.safetensors").unlink()
    torch.save({"a": Attack()}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError):
        loaded(recipe, folder)
    assert not (folder / "owned").exists()


def test_weights_of_another_model_are_refused(recipe, folder):
    from safetensors.torch import save_file

    save_file({"something.else": torch.zeros(2)}, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"its weights lack .* of this model's tensors"):
        loaded(recipe, folder)


def test_a_head_of_another_size_is_replaced_and_said(recipe, folder, caplog):
    AutoModelForSequenceClassification.from_pretrained(folder, num_labels=5).save_pretrained(folder)
    with caplog.at_level(logging.INFO, logger="launcher"):
        model = loaded(recipe, folder)
    assert model.classifier.out_features == 2
    assert "new weights, trained from the start: classifier.bias, classifier.weight" in caplog.messages


def test_an_unknown_config_key_is_an_error_that_lists_the_known(recipe, folder):
    with pytest.raises(ModelError, match=r"model.config.dropout: not in this model's config \(.*hidden_dropout_prob"):
        loaded(recipe, folder, config={"dropout": 0.0})


def test_a_model_trained_on_the_same_labels_keeps_their_order(recipe, folder):
    task = SequenceClassification(type="sequence_classification")
    names = {"id2label": {0: "good", 1: "bad"}, "label2id": {"good": 0, "bad": 1}}
    AutoModelForSequenceClassification.from_pretrained(folder, **names).save_pretrained(folder)
    config = load_config(check(recipe(model={"source": str(folder)})).recipe)
    assert apply_labels(config, task, ("bad", "good")) == ("good", "bad")
    assert apply_labels(config, task, ("bad", "worse")) == ("bad", "worse")


def test_roberta_reads_two_tokens_fewer_than_its_table_has_rows(tiny_model):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.model_max_length = 10**30
    assert length_limit(RobertaConfig(max_position_embeddings=514), tokenizer) == 512
    tokenizer.model_max_length = 128
    assert length_limit(RobertaConfig(max_position_embeddings=514), tokenizer) == 128
