"""A saved training state goes on in any form: each is saved by each, and loaded into each."""

from __future__ import annotations

import json
import os
import shutil
from itertools import product
from pathlib import Path

import pytest
import torch
import yaml

from tests.conftest import WORDS, forget_forms
from tests.launches.commands import ACCELERATE, TWO, start
from tests.launches.portable_state_job import HALF, go_on, train_and_save

pytestmark = pytest.mark.launch
JOB = str(Path(__file__).with_name("portable_state_job.py"))
TABLE = {
    "ddp": {},
    "zero_2": {"zero": {"stage": 2}},
    "zero_3": {"zero": {"stage": 3}},
    "fsdp": {"fsdp": {"reshard": True}},
}
# Each goes on after a plain process, and a plain process and itself after each.
BESIDE = {
    "zero_1": {"zero": {"stage": 1}},
    "zero_2_offload": {"zero": {"stage": 2, "offload": "optimizer"}},
    "zero_3_offload": {"zero": {"stage": 3, "offload": "parameters"}},
    "fsdp_offload": {"fsdp": {"offload": True}},
}
CASES = [(name, optimizer) for name in ("plain", *TABLE) for optimizer in ("adamw", "sgd")]
CASES += [(name, "adamw") for name in BESIDE]
PAIRS = [*product(["plain", *TABLE], ["plain", *TABLE], ["adamw", "sgd"])]
PAIRS += [
    pair for name in BESIDE for pair in (("plain", name, "adamw"), (name, "plain", "adamw"), (name, name, "adamw"))
]
NOT_DROPPED = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_model):
    """Weights after six updates, uninterrupted and by each pair; plain ones are trained in this process."""
    folder = tmp_path_factory.mktemp("portable")
    two = folder / "two"
    two.mkdir()
    # Three classes: the head's bias cannot be cut in two.
    rows = [{"text": " ".join(WORDS[i % 7 : i % 7 + 3 + i % 11]), "label": "abc"[i * i % 7 % 3]} for i in range(49)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    base = {
        "name": "tiny",
        "model": {"source": str(tiny_model), "config": NOT_DROPPED},
        "task": {"type": "sequence_classification"},
        "data": {"train": str(folder / "rows.jsonl")},
        "training": {"batch_size": 24, "updates": 6, "learning_rate": 1e-3, "weight_decay": 0.01},
    }
    strategies = {"gradient_accumulation": {"tokens": 100}, "uniform_dynamic_padding": True}
    for name, optimizer in CASES:
        path = (folder if name == "plain" else two) / f"{name}_{optimizer}.yaml"
        own = strategies | (TABLE | BESIDE).get(name, {})
        path.write_text(yaml.safe_dump(base | {"strategies": own}), encoding="utf-8")
    pairs = [(f"{saved}_{optimizer}", f"{name}_{optimizer}") for saved, name, optimizer in PAIRS if name != "plain"]
    (two / "pairs.json").write_text(json.dumps(pairs), encoding="utf-8")
    for optimizer in ("adamw", "sgd"):
        train_and_save(folder / f"plain_{optimizer}.yaml")
    shutil.copytree(folder / "states", two / "states")
    done = start([*ACCELERATE, *TWO, JOB, str(two)], cwd=folder)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    shutil.copytree(two / "states", folder / "states", dirs_exist_ok=True)
    for saved, name, optimizer in PAIRS:
        if name == "plain":
            go_on(folder / f"plain_{optimizer}.yaml", f"{saved}_{optimizer}")
    forget_forms()
    os.environ.pop("ACCELERATE_USE_CPU")
    for path in two.glob("*.pt"):
        shutil.move(path, folder / path.name)
    return folder


def distance(some, others):
    """Of all parameters, relative."""
    difference = torch.cat([(some[name] - others[name]).flatten().double() for name in others])
    return float(difference.norm() / torch.cat([one.flatten().double() for one in others.values()]).norm())


@pytest.mark.parametrize(("saved", "name", "optimizer"), PAIRS, ids=lambda value: value)
def test_a_state_goes_on_in_every_form_as_if_nothing_had_happened(folder, saved, name, optimizer):
    found = torch.load(folder / f"{saved}_{optimizer}-{name}_{optimizer}.pt")
    expected = torch.load(folder / f"plain_{optimizer}.pt")
    assert set(found) == set(expected)
    # Adam divides by the gradient's size, which lifts rounding in gradients near zero to the learning rate.
    assert distance(found, expected) < {"sgd": 1e-7, "adamw": 1e-4}[optimizer]
    if saved == name:
        uninterrupted = torch.load(folder / f"{name}_{optimizer}.pt")
        assert [key for key in found if not torch.equal(found[key], uninterrupted[key])] == []


@pytest.mark.parametrize(("name", "optimizer"), [case for case in CASES if case[0] != "plain"])
def test_every_form_saves_the_same_layout(folder, name, optimizer):
    from safetensors.torch import load_file

    for stem in ("weights", "states"):
        files = [folder / "states" / f"{one}_{optimizer}" / f"{stem}-00001.safetensors" for one in (name, "plain")]
        found, expected = (load_file(file) for file in files)
        assert {key: (value.shape, value.dtype) for key, value in found.items()} == {
            key: (value.shape, value.dtype) for key, value in expected.items()
        }
        assert {value.dtype for value in found.values()} == {torch.float32}
        assert distance(found, expected) < (1e-4 if optimizer == "adamw" else 1e-5)
    contents = [
        json.loads((folder / "states" / f"{one}_{optimizer}" / "state.json").read_text()) for one in (name, "plain")
    ]
    assert [content["update"] for content in contents] == [HALF, HALF]
    assert contents[0]["states"] == contents[1]["states"]
    assert contents[0]["schedule"] == contents[1]["schedule"]
