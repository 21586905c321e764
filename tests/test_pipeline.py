"""A whole run in this process: what the folder holds, what the person is told, what the model answers."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState

from launcher.check import check
from launcher.fit import _record
from launcher.meter import MemoryMeter
from launcher.pipeline import run
from launcher.run_state import Phases, Run
from launcher.screen import Screen
from launcher.summary import collect
from launcher.train import UpdateResult

pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")  # torch without a card, in pipeline


@pytest.fixture
def train(recipe):
    """Runs a recipe to the end; returns its folder."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield lambda **sections: run(check(recipe(**sections)))
    AcceleratorState._reset_state(reset_partial_state=True)


HELD = {"validation": {"share": 0.25}}
RESULT = UpdateResult(torch.tensor(1.0), torch.tensor(1.0), 1e-3, False)


def records(folder, kind):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def test_every_update_is_recorded_with_what_it_learned_and_took(train):
    folder = train(data=HELD, strategies={"dynamic_padding": True, "gradient_accumulation": {"micro_batch": 6}})
    updates = records(folder, "update")
    assert [record["update"] for record in updates] == [1, 2]
    assert [record["epoch"] for record in updates] == [0.5, 1.0]
    for record in updates:
        assert record["loss"] > 0
        assert record["gradient_norm"] > 0
        assert record["examples_per_second"] > 0
        assert record["tokens_per_second"] > record["examples_per_second"]
        assert 0 < record["padding_share"] < 1
        assert record["peak_memory"] > 2**20
    assert [record["learning_rate"] for record in updates] == pytest.approx([1e-3, 5e-4])
    assert [record["micro_batches"] for record in updates] == [4, 3]


def test_what_each_save_took_is_recorded(train):
    folder = train()
    size = (folder / "model" / "model.safetensors").stat().st_size
    for record in (*records(folder, "save_trial"), *records(folder, "save")):
        assert 0 < size - record["bytes"] < 10_000  # the file's header
        assert record["seconds"] > 0
    assert [record["update"] for record in records(folder, "save")] == [2]


def test_the_folder_holds_recipe_plan_versions_and_results(train):
    folder = train(data=HELD, memory={"budget": "1TB"})
    recipe, plan, versions, results = (
        json.loads((folder / f"{name}.json").read_text()) for name in ("recipe", "plan", "versions", "results")
    )
    assert recipe["training"]["batch_size"] == 24
    assert plan["processes"] == 1
    assert versions["torch"] == torch.__version__
    assert set(results["peak_memory"]) == {"load", "train", "evaluate", "save"} == set(results["seconds"])
    assert all(sizes["resident"] > 2**20 for sizes in results["peak_memory"].values())
    assert results["budget"]["kept"]
    assert set(results["per_class"]) == {"bad", "good"}


def test_the_model_loads_with_pipeline_and_knows_the_label_names(train):
    from transformers import AutoModelForSequenceClassification, pipeline

    folder = train(data=HELD)
    answer = pipeline("text-classification", str(folder / "model"))("the room was clean")
    assert answer[0]["label"] in ("bad", "good")
    model = AutoModelForSequenceClassification.from_pretrained(folder / "model")
    assert model.config.id2label == {0: "bad", 1: "good"}
    assert model.dtype == torch.float32
    card = (folder / "model" / "README.md").read_text()
    assert "pipeline_tag: text-classification" in card
    assert "| accuracy |" in card


def test_a_run_no_better_than_the_majority_class_is_called_that(train, capsys):
    folder = train(data=HELD, training={"learning_rate": 1e-12, "updates": 1})
    results = json.loads((folder / "results.json").read_text())
    told = "NO BETTER than always" in capsys.readouterr().out
    assert told == (results["metrics"]["accuracy"] <= results["floor"]["accuracy"])
    assert told == (not results["better_than_floor"])


def test_a_run_that_learns_is_better_than_the_majority_class(train, capsys):
    folder = train(data=HELD, training={"learning_rate": 3e-3, "updates": 40})
    results = json.loads((folder / "results.json").read_text())
    assert results["better_than_floor"]
    assert "NO BETTER" not in capsys.readouterr().out


@pytest.mark.parametrize(("metric", "best"), [("loss", min), ("macro_f1", max)])
def test_the_best_weights_by_the_metric_are_those_that_are_kept(train, metric, best):
    """A learning rate that leaps about, so that the best is not the last."""
    training = {"updates": 12, "evaluate_every": 1, "keep_best": metric, "learning_rate": 2e-2, "schedule": "constant"}
    folder = train(data=HELD, training=training)
    evaluations = records(folder, "evaluation")
    results = json.loads((folder / "results.json").read_text())
    values = [record[metric] for record in evaluations]
    assert len(values) == 12
    assert results["metrics"][metric] == best(values)
    assert results["kept_update"] == evaluations[values.index(best(values))]["update"]
    assert f"{results['kept_update']} updates" in (folder / "model" / "README.md").read_text().replace(
        "1 update of", "1 updates of"
    )


def test_evaluation_comes_after_every_epoch_and_at_the_end(train):
    folder = train(data=HELD, training={"updates": None, "epochs": 2.5})
    assert [record["update"] for record in records(folder, "evaluation")] == [2, 4, 5]


def test_a_second_run_of_a_name_leaves_the_first_alone(train):
    first = train()
    before = {path.name: path.stat().st_mtime_ns for path in first.iterdir()}
    AcceleratorState._reset_state(reset_partial_state=True)
    second = train()
    assert second.name == "tiny-2"
    assert {path.name: path.stat().st_mtime_ns for path in first.iterdir()} == before


@pytest.mark.parametrize(
    ("problem", "label", "metrics"),
    [
        ("multi_label", "labels", {"loss", "accuracy", "macro_f1"}),
        ("regression", "score", {"loss", "mean_squared_error", "mean_absolute_error", "pearson"}),
    ],
)
def test_other_problems_run_to_the_end(train, problem, label, metrics):
    folder = train(task={"problem": problem}, data=HELD | {"columns": {"label": label}})
    results = json.loads((folder / "results.json").read_text())
    assert set(results["metrics"]) == metrics == set(results["floor"]) - {"answer"}
    assert np.isfinite(list(results["metrics"].values())).all()


def test_the_same_recipe_gives_the_same_weights_bit_for_bit(train):
    from safetensors.torch import load_file

    dropout = {"config": {"hidden_dropout_prob": 0.1}}
    first = load_file(train(model=dropout) / "model" / "model.safetensors")
    AcceleratorState._reset_state(reset_partial_state=True)
    second = load_file(train(model=dropout) / "model" / "model.safetensors")
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_warmup_that_outlasts_the_run_is_said(train, capsys):
    train(training={"warmup": 2})
    assert "training.warmup: 2 of 2 updates, the rate never gets to 0.001" in " ".join(capsys.readouterr().out.split())


def test_a_first_evaluation_that_is_not_a_number_is_not_the_best_for_ever(train, monkeypatch):
    from launcher import fit

    losses = iter([float("nan"), 2.0, float("nan")])
    true = fit.evaluate

    def evaluate(session):
        found = true(session)
        return replace(found, metrics=found.metrics | {"loss": next(losses)})

    monkeypatch.setattr(fit, "evaluate", evaluate)
    folder = train(data=HELD, training={"updates": 3, "evaluate_every": 1, "keep_best": "loss"})
    assert json.loads((folder / "results.json").read_text())["kept_update"] == 2


def test_the_peak_is_that_of_the_process_that_took_most(train, monkeypatch):
    other = {
        "load": {"tensors": 2**50, "resident": 2**50},
        "evaluate": {"tensors": 1, "resident": 1},
        "train": {"tensors": 1, "resident": 1},
        "save": {"tensors": 1, "resident": 1},
    }
    monkeypatch.setattr("launcher.summary.gather_object", lambda objects: [*objects, other])
    results = json.loads((train(data=HELD, memory={"budget": "1TB"}) / "results.json").read_text())
    assert results["peak_memory"]["load"]["resident"] == 2**50
    assert results["peak_memory"]["train"]["resident"] > 2**20
    assert not results["budget"]["kept"]


def test_a_process_that_is_dealt_no_example_reports_as_the_others_do(build, tmp_path):
    """As the third of three at two examples an update."""
    session = build(training={"batch_size": 2})
    session.cutter = replace(session.cutter, processes=3, rank=2)
    indices = next(session.sampler.updates(0, 1))
    state = Run(tmp_path, Screen(main=True), Phases(MemoryMeter(torch.device("cpu"))))
    with state.phase("train"):
        _record(session, state, 1, indices, session.cutter.cut(indices), RESULT, time.perf_counter() - 1)
    assert collect(session, state)["padding_share"] == 0


def test_tokens_are_those_of_all_processes_counted_once(build, tmp_path):
    """Of three examples one process runs two, and those the longest: doubling its tokens would be too many."""
    session = build(training={"batch_size": 3})
    session.cutter = replace(session.cutter, processes=2)
    indices = next(session.sampler.updates(0, 1))
    state = Run(tmp_path, Screen(main=True), Phases(MemoryMeter(torch.device("cpu"))))
    _record(session, state, 1, indices, session.cutter.cut(indices), RESULT, time.perf_counter() - 1)
    (record,) = records(tmp_path, "update")
    tokens = record["tokens_per_second"] * record["seconds"]
    assert tokens == pytest.approx(session.examples.lengths.used[indices].sum())


@pytest.fixture
def tokenizer_of_words_alone(tiny_model, tmp_path):
    """A model whose tokenizer adds no special tokens and leaves nothing of what is not letters."""
    folder = shutil.copytree(tiny_model, tmp_path / "words_alone")
    content = json.loads((folder / "tokenizer.json").read_text())
    letters = {"type": "Replace", "pattern": {"Regex": "[^a-z ]"}, "content": ""}
    (folder / "tokenizer.json").write_text(json.dumps(content | {"post_processor": None, "normalizer": letters}))
    return folder


def test_texts_of_which_the_tokenizer_leaves_nothing_are_dropped_and_counted(
    train, tokenizer_of_words_alone, tmp_path, capsys
):
    (tmp_path / "rows.csv").write_text("text,label\n!!,a\ngood,a\nbad room,b\n?,b\n", encoding="utf-8")
    train(
        model={"source": str(tokenizer_of_words_alone)},
        data={"train": str(tmp_path / "rows.csv")},
        training={"batch_size": 1, "updates": None, "epochs": 1},
    )
    assert "data: 2 texts of 4 dropped: no tokens" in capsys.readouterr().out
    assert len(records(tmp_path / "runs" / "tiny", "update")) == 2
