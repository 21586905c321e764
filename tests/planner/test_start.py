"""Whole answers are kept under all that they depend on, and for what is known here alone."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from launcher import calibration
from launcher.check import check
from launcher.devices import find_device
from launcher.errors import BudgetError
from launcher.planner import start
from launcher.records import versions
from launcher.units import GIB, MIB

CARD = find_device("GTX 1650")
BUDGET = [(CARD, 4 * GIB)]
REFUSAL = {"kind": "BudgetError", "where": "memory.budget 4.0 GiB", "problems": ["nothing fits"]}


@pytest.fixture
def asked(monkeypatch):
    """What the planner's process is asked; it answers that nothing fits."""
    requests = []

    def ask(what, request, *, on_cpu):
        requests.append((what, request))
        return [REFUSAL for _ in request["targets"]]

    monkeypatch.setattr(start, "ask", ask)
    return requests


def is_asked(requests, path, *overrides, targets=BUDGET):
    """Whether this plan asks the planner's process anew."""
    before = len(requests)
    (answer, *_) = start.plan(check(path, overrides), targets)
    assert isinstance(answer, BudgetError)
    assert answer.problems == ("nothing fits",)
    return len(requests) > before


def test_the_same_question_is_asked_once(asked, recipe):
    path = recipe()
    assert is_asked(asked, path)
    assert not is_asked(asked, path)
    assert asked[0][0] == "plan"
    assert asked[0][1]["targets"][0][1] == 4 * GIB
    json.dumps(asked[0][1])


@pytest.mark.parametrize(
    "override", ["training.batch_size=12", "memory.allow=[adafactor]", "strategies.gradient_checkpointing=true"]
)
def test_a_changed_recipe_is_asked_anew(asked, recipe, override):
    path = recipe()
    is_asked(asked, path)
    assert is_asked(asked, path, override)
    assert not is_asked(asked, path, override)


def test_a_changed_name_or_output_folder_is_not(asked, recipe):
    path = recipe()
    is_asked(asked, path)
    assert not is_asked(asked, path, "name=other", "output.folder=elsewhere")


def test_another_budget_or_device_is_asked_anew(asked, recipe):
    path = recipe()
    is_asked(asked, path)
    assert is_asked(asked, path, targets=[(CARD, 5 * GIB)])
    assert is_asked(asked, path, targets=[(find_device("RTX 3060"), 4 * GIB)])
    assert is_asked(asked, path, targets=[*BUDGET, (CARD, 5 * GIB)])


@pytest.mark.parametrize("which", ["train", "validation"])
def test_a_changed_data_file_is_asked_anew(asked, recipe, rows_file, tmp_path, which):
    files = {name: shutil.copy(rows_file, tmp_path / f"{name}.jsonl") for name in ("train", "validation")}
    path = recipe(data={"train": str(files["train"]), "validation": {"file": str(files["validation"])}})
    is_asked(asked, path)
    assert not is_asked(asked, path)
    with files[which].open("a", encoding="utf-8") as lines:
        lines.write('{"text": "good", "label": "good"}\n')
    assert is_asked(asked, path)


def test_a_changed_model_is_asked_anew(asked, recipe, tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    path = recipe(model={"source": str(folder)})
    is_asked(asked, path)
    os.utime(folder / "config.json", ns=(1, 1))
    assert is_asked(asked, path)


def test_another_version_or_another_line_of_code_is_asked_anew(asked, recipe, monkeypatch):
    path = recipe()
    is_asked(asked, path)
    monkeypatch.setattr("launcher.cache.versions", lambda: {"torch": "another"})
    assert is_asked(asked, path)
    monkeypatch.setattr("launcher.cache._code", lambda: "another")
    assert is_asked(asked, path)


def test_what_a_run_on_the_device_has_shown_is_asked_anew(asked, recipe):
    path = recipe()
    is_asked(asked, path)
    shown = {"torch": versions()["torch"], "bytes": {"train": [100, 110]}, "seconds_per_update": [1.0, 2.0]}
    calibration.keep(shown | {"device": "RTX 3060"})
    assert not is_asked(asked, path)
    calibration.keep(shown | {"device": "GTX 1650"})
    assert is_asked(asked, path)


def test_a_hubs_data_is_never_kept_because_it_may_change(asked, recipe):
    path = recipe(data={"train": "someone/reviews"})
    assert is_asked(asked, path)
    assert is_asked(asked, path)


def test_a_hubs_model_is_never_kept(asked, recipe):
    path = recipe(model={"source": "someone/bert"})
    assert is_asked(asked, path)
    assert is_asked(asked, path)


def test_other_numbers_of_processes_and_computers_are_asked_for_themselves(asked, recipe):
    for world in ({"processes": 2}, {"processes": 4}, {"processes": 4, "nodes": 2}):
        start.plan(check(recipe(), **world), BUDGET)
    assert len(asked) == 3
    start.plan(check(recipe(), processes=4, nodes=2), BUDGET)
    assert len(asked) == 3


def test_an_answer_that_cannot_be_read_is_asked_anew(asked, recipe, cache):
    path = recipe()
    is_asked(asked, path)
    for file in (cache / "plans").iterdir():
        file.write_text("{", encoding="utf-8")
    assert is_asked(asked, path)


def test_the_planners_own_process_answers_for_every_target(recipe):
    """Without a patch: one process, a proposal and a refusal."""
    path = recipe()
    fits, does_not = start.plan(check(path), [(CARD, GIB), (CARD, 460 * MIB)])
    assert (fits.budget, fits.device) == (GIB, CARD)
    assert isinstance(does_not, BudgetError)
    assert start.plan(check(path), [(CARD, GIB), (CARD, 460 * MIB)])[0] == fits


def test_measurements_are_shared_by_budgets_and_processes_of_a_device_kind(ground, monkeypatch, tmp_path):
    from launcher.planner import ground as grounds
    from launcher.planner.propose import propose

    monkeypatch.setenv("FRUGAL_LAUNCHER_CACHE", str(tmp_path / "nothing measured yet"))
    propose(ground("GTX 1650"), GIB)
    monkeypatch.setattr(grounds, "measure", lambda *_: pytest.fail("measured again"))
    # Another budget, card of the same capability, data with as long texts, name, batch size.
    propose(ground("T4", training={"batch_size": 7}, data={"max_rows": 50}), 2 * GIB)
    with pytest.raises(pytest.fail.Exception, match="measured again"):
        propose(ground("RTX 3060"), GIB)
    with pytest.raises(pytest.fail.Exception, match="measured again"):
        propose(ground("GTX 1650", model={"config": {"num_hidden_layers": 1}}), GIB)
