"""Promise 1 on two real processes, and the launches that would break it in silence."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
import yaml

from tests.conftest import session_from
from tests.families import make_family
from tests.launches.commands import ACCELERATE, ONE, QUIET, ROOT, RUN, TWO, start

pytestmark = pytest.mark.launch
HERE = Path(__file__).parent
CASES = {
    "whole": {},
    "micro_batch_1": {"gradient_accumulation": {"micro_batch": 1}},
    "micro_batch_3_dynamic": {"gradient_accumulation": {"micro_batch": 3}, "dynamic_padding": True},
    "steps_4_uniform": {"gradient_accumulation": {"steps": 4}, "uniform_dynamic_padding": True},
    "tokens_64_uniform": {"gradient_accumulation": {"tokens": 64}, "uniform_dynamic_padding": True},
    "checkpointing": {"gradient_checkpointing": True, "gradient_accumulation": {"tokens": 96}},
    "frozen": {"freezing": {"embeddings": True}, "gradient_accumulation": {"micro_batch": 4}},
    "bf16": {"mixed_precision": {"precision": "bf16"}, "gradient_accumulation": {"micro_batch": 6}},
}
UNUSED = "xlnet_with_an_unused_embedding"
PROBLEMS = {"multi_label": "labels", "regression": "score"}


def write_recipes(folder, recipe):
    for name, strategies in CASES.items():
        off = {"uniform_dynamic_padding": False, "fast_tokenizer": False}
        written = recipe(strategies=off | strategies, data={"validation": {"share": 0.2}}, training={"updates": 3})
        written.rename(folder / f"{name}.yaml")
    for problem, label in PROBLEMS.items():
        written = recipe(task={"problem": problem}, data={"columns": {"label": label}})
        written.rename(folder / f"{problem}.yaml")
    source = {"source": str(make_family("xlnet", folder / "xlnet")), "config": {"dropout": 0.0}}
    strategies = {"gradient_accumulation": {"micro_batch": 3}}
    recipe(model=source, strategies=strategies).rename(folder / f"{UNUSED}.yaml")


@pytest.fixture(scope="module")
def launched(tmp_path_factory, tiny_model, rows_file):
    """One launch of two processes that answers for all cases."""
    folder = tmp_path_factory.mktemp("two")

    def recipe(**sections):
        content = yaml.safe_load(yaml.safe_dump(BASE))
        content["model"]["source"], content["data"]["train"] = str(tiny_model), str(rows_file)
        for section, changes in sections.items():
            content[section] = content[section] | changes
        path = folder / "recipe"
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        return path

    write_recipes(folder, recipe)
    command = [*ACCELERATE, *TWO, str(HERE / "two_process_job.py"), str(folder)]
    done = start(command, cwd=folder, ACCELERATE_USE_CPU="true")
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, [json.loads((folder / f"answers-{rank}.json").read_text()) for rank in (0, 1)]


BASE = {
    "name": "tiny",
    "model": {"source": "", "config": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}},
    "task": {"type": "sequence_classification"},
    "data": {"train": ""},
    "training": {"batch_size": 24, "updates": 3, "learning_rate": 1e-3},
    "strategies": {},
}


@pytest.mark.parametrize("name", [*CASES, *PROBLEMS, UNUSED])
def test_two_processes_leave_the_gradient_of_one_big_batch(launched, name):
    tolerance = 5e-2 if name == "bf16" else 1e-5  # bf16 rounds to 3 digits, in another order per micro-batch
    for answers in launched[1]:
        assert {size: error for size, error in answers[name]["errors"].items() if not error < tolerance} == {}


@pytest.mark.parametrize("name", [*CASES, *PROBLEMS, UNUSED])
def test_both_processes_hold_the_same_weights_after_updates(launched, name):
    folder, answers = launched
    first, second = (torch.load(folder / f"{name}-{rank}.pt") for rank in (0, 1))
    assert torch.equal(first, second)
    assert answers[0][name]["losses"] == answers[1][name]["losses"]


@pytest.mark.parametrize("name", [name for name in CASES if name != "bf16"])
def test_two_processes_train_and_predict_as_one(launched, name):
    from accelerate.state import AcceleratorState

    from launcher.evaluate import predict
    from launcher.train import train_update

    folder, answers = launched
    AcceleratorState._reset_state(reset_partial_state=True)
    session = session_from(folder / f"{name}.yaml")
    session.set_train_mode()
    losses = [float(train_update(session, session.cutter.cut(i)).loss) for i in session.sampler.updates(0, 3)]
    weights = torch.cat([p.detach().flatten() for p in session.model.parameters()])
    both = torch.load(folder / f"{name}-0.pt")
    assert answers[0][name]["losses"] == pytest.approx(losses, rel=1e-5)
    # Adam divides by the gradient's size, which lifts rounding in gradients near zero to the learning rate.
    assert float((weights - both).norm() / weights.norm()) < 1e-4
    expected = torch.tensor(predict(session, *session.validation))
    assert torch.allclose(torch.tensor(answers[0][name]["logits"]), expected, atol=1e-3)
    AcceleratorState._reset_state(reset_partial_state=True)


def test_two_processes_joined_without_a_wrapper_stop_before_training(tmp_path):
    done = start([*ACCELERATE, *TWO, str(HERE / "separate_copies_job.py")], cwd=tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode != 0
    assert "2 processes would each train a model of their own" in done.stdout


@pytest.mark.parametrize("flags", [["--cpu"], []])
def test_one_process_where_two_were_asked_for_stops_before_training(flags, recipe, tmp_path):
    done = start([*ACCELERATE, *flags, "--num_processes", "2", *QUIET, RUN, str(recipe())], cwd=tmp_path)
    assert done.returncode != 0
    assert "several processes were asked for (MASTER_ADDR is set), accelerate started one" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_one_process_is_not_mistaken_for_a_broken_launch(recipe, tmp_path):
    done = start([*ACCELERATE, *ONE, RUN, str(recipe(training={"updates": 1}))], cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "use it: python -c" in done.stdout


def test_the_python_that_runs_the_tests_runs_the_jobs():
    assert ACCELERATE[0] == sys.executable
