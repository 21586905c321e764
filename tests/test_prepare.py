"""Examples are made once, and again when anything that they hang on has changed; from disk they are the same."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
from types import SimpleNamespace

import pytest
from datasets import Dataset

from launcher import kept_examples
from launcher.cache import folder_of
from launcher.check import check
from launcher.errors import DataError
from launcher.load import check_agreement, load_data
from launcher.plan import make_plan
from launcher.tasks import SequenceClassification
from tests.conftest import make_rows

HELD = {"validation": {"share": 0.25}}


@pytest.fixture(autouse=True)
def kept(monkeypatch, tmp_path):
    monkeypatch.setenv("FRUGAL_LAUNCHER_CACHE", str(tmp_path / "kept"))


@pytest.fixture
def texts(monkeypatch):
    """How many texts the tokenizer was given."""
    seen = []
    encode = SequenceClassification.encode

    def counted(self, rows, *others):
        seen.extend(rows["text"])
        return encode(self, rows, *others)

    monkeypatch.setattr(SequenceClassification, "encode", counted)
    return seen


@pytest.fixture
def own(tmp_path, tiny_model):
    """Data and a model that a test may change."""
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in make_rows(40)), encoding="utf-8")
    return {
        "data": HELD | {"train": str(path)},
        "model": {"source": str(shutil.copytree(tiny_model, tmp_path / "own"))},
    }


def load(path):
    return load_data(make_plan(check(path)))


def content(loaded):
    some = [examples for examples in (loaded.train, loaded.held) if examples is not None]
    lengths = [(examples.lengths.used.tolist(), examples.lengths.full.tolist()) for examples in some]
    types = [(one.lengths.used.dtype, one.tokens.column_names, [type(label) for label in one.labels]) for one in some]
    return [examples.tokens.to_dict() for examples in some], [one.labels for one in some], lengths, types, loaded.labels


SAME = {
    "nothing": {},
    "rate": {"training": {"learning_rate": 2e-3}},
    "name_and_place_of_the_run": {"output": {"folder": "elsewhere"}},
    "dropout": {"model": {"config": {"hidden_dropout_prob": 0.5}}},
}
CHANGED = {
    "max_length": {"strategies": {"max_length": {"tokens": 16}}},
    "longest_input_of_the_model": {"model": {"config": {"max_position_embeddings": 32}}},
    "share": {"data": {"validation": {"share": 0.5}}},
    "seed_of_the_split": {"training": {"seed": 1}},
    "rows": {"data": {"max_rows": 30}},
    "task": {"task": {"problem": "multi_label"}, "data": {"columns": {"label": "labels"}}},
    "columns": {"data": {"columns": {"text_pair": "text_pair"}}},
}


def merged(first, second):
    return {name: first.get(name, {}) | second.get(name, {}) for name in first | second}


@pytest.mark.parametrize("change", SAME)
def test_what_examples_do_not_hang_on_leaves_them_as_they_are(recipe, own, texts, change):
    before = content(load(recipe(**own)))
    texts.clear()
    assert content(load(recipe(**merged(own, SAME[change])))) == before
    assert texts == []


@pytest.mark.parametrize("change", CHANGED)
def test_what_they_hang_on_makes_new_ones(recipe, own, texts, change):
    load(recipe(**own))
    texts.clear()
    found = content(load(recipe(**merged(own, CHANGED[change]))))
    assert len(texts) >= 30
    shutil.rmtree(folder_of("examples"))
    assert content(load(recipe(**merged(own, CHANGED[change])))) == found


@pytest.mark.parametrize("what", ["data", "tokenizer", "order_of_labels"])
def test_changed_files_make_new_ones_even_where_size_and_time_are_the_old(recipe, own, tmp_path, texts, what):
    path = recipe(**own)
    before = content(load(path))
    file = {
        "data": tmp_path / "own.jsonl",
        "tokenizer": tmp_path / "own" / "tokenizer.json",
        "order_of_labels": tmp_path / "own" / "config.json",
    }[what]
    seen, text = file.stat(), file.read_text(encoding="utf-8")
    if what == "order_of_labels":
        labels = {"id2label": {"0": "good", "1": "bad"}, "label2id": {"good": 0, "bad": 1}}
        file.write_text(json.dumps(json.loads(text) | labels), encoding="utf-8")
    else:
        file.write_text(text.replace("night", "noise"), encoding="utf-8")
        os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
        assert (file.stat().st_size, file.stat().st_mtime_ns) == (seen.st_size, seen.st_mtime_ns)
    texts.clear()
    assert content(load(path)) != before
    assert len(texts) >= 40


@pytest.mark.parametrize(
    ("problem", "label"), [("single_label", "label"), ("multi_label", "labels"), ("regression", "score")]
)
def test_examples_from_disk_are_those_that_were_never_there(recipe, problem, label, monkeypatch, tmp_path):
    columns = {"columns": {"label": label, "text_pair": "text_pair"}}
    path = recipe(task={"problem": problem}, data=HELD | columns, strategies={"max_length": {"tokens": 16}})
    made, read = content(load(path)), content(load(path))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FRUGAL_LAUNCHER_CACHE", str(tmp_path / "file"))
    assert content(load(path)) == made == read


def test_a_data_set_of_the_hub_is_known_by_its_commit(recipe, texts, monkeypatch):
    commit = ["first"]
    monkeypatch.setattr("datasets.load_dataset", lambda place, subset, split: Dataset.from_list(make_rows(40)))
    monkeypatch.setattr("datasets.load_dataset_builder", lambda *_: SimpleNamespace(cache_dir=f"/cache/{commit[0]}"))
    path = recipe(data={"train": "somebody/reviews"})
    counts = []
    for commit[0] in ("first", "first", "second"):
        texts.clear()
        load(path)
        counts.append(len(texts))
    assert counts == [40, 0, 40]


def test_what_was_said_of_the_data_is_said_again(recipe, tmp_path, caplog):
    rows = [*make_rows(20), {"text": "", "label": "good"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    path = recipe(data={"train": str(tmp_path / "rows.jsonl")}, model={"config": {"max_position_embeddings": 16}})
    told = []
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.INFO, "launcher"):
            load(path)
        told.append(caplog.messages)
    assert told[0] == told[1]
    assert "data: 1 row of 21 dropped: 1 without 'text'" in told[0]
    assert "data: 20 examples to train on, 0 to validate" in told[0]
    assert "2 labels: bad, good" in told[0]
    assert any(line.endswith("cut to the 16 tokens that the model can read") for line in told[0])


def test_a_disk_that_is_full_is_said_and_leaves_nothing_behind(recipe, monkeypatch, caplog):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("numpy.save", full)  # the tokens are written by then
    with caplog.at_level(logging.WARNING, "launcher"):
        assert len(load(recipe(data=HELD)).train) == 42
    assert caplog.messages == [
        f"data: {folder_of('examples')} cannot be written (No space left on device): "
        "every process tokenises for itself, in the next run again"
    ]
    assert list(folder_of("examples").iterdir()) == []


@pytest.mark.parametrize("file", ["facts.json", "train/labels.json", "train/lengths.npy", "train/state.json", "arrow"])
def test_a_broken_entry_is_made_again(recipe, texts, file):
    path = recipe(data=HELD)
    before = content(load(path))
    (entry,) = folder_of("examples").iterdir()
    broken = next(entry.glob("train/*.arrow")) if file == "arrow" else entry / file
    broken.write_bytes(broken.read_bytes()[:-20])
    for expected in (True, False):
        texts.clear()
        assert content(load(path)) == before
        assert bool(texts) == expected


def test_what_was_used_longest_ago_goes_and_never_what_was_just_made(recipe, own, monkeypatch, texts):
    for number, seed in enumerate((0, 1, 0, 2)):
        load(recipe(**own, training={"seed": seed}))
        newest = max(folder_of("examples").iterdir(), key=lambda entry: entry.stat().st_mtime_ns)
        os.utime(newest, (number, number))
    size = sum(file.stat().st_size for file in newest.rglob("*"))
    monkeypatch.setattr(kept_examples, "MOST_BYTES", int(2.5 * size))
    load(recipe(**own, training={"seed": 3}))
    texts.clear()
    load(recipe(**own, training={"seed": 2}))
    load(recipe(**own, training={"seed": 3}))
    assert texts == []
    monkeypatch.setattr(kept_examples, "MOST_BYTES", 1)
    load(recipe(**own, training={"seed": 0}))
    assert len(list(folder_of("examples").iterdir())) == 1


def test_processes_that_hold_different_examples_do_not_train(recipe, own, monkeypatch):
    path = recipe(**own)
    loaded = load(path)
    check_agreement(loaded)
    monkeypatch.setattr("launcher.load.gather_object", lambda mine: [*mine, "another"])
    with pytest.raises(DataError, match="the data changed as they started; start again"):
        check_agreement(loaded)
