"""What a run writes is strict JSON, whole, and never over another run."""

from __future__ import annotations

import json
import math

import pytest

from launcher.errors import RecipeError
from launcher.records import append_line, new_run_folder, replace_folder, write_json


def test_numbers_that_json_does_not_have_become_null(tmp_path):
    append_line(tmp_path / "lines.jsonl", {"loss": math.nan, "norms": [math.inf, 1.5]})
    write_json(tmp_path / "whole.json", {"a": {"b": -math.inf}})
    assert json.loads((tmp_path / "lines.jsonl").read_text()) == {"loss": None, "norms": [None, 1.5]}
    assert json.loads((tmp_path / "whole.json").read_text()) == {"a": {"b": None}}
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".tmp"] == []


def test_runs_of_a_name_are_numbered(tmp_path):
    assert [new_run_folder(tmp_path / "runs", "a").name for _ in range(3)] == ["a", "a-2", "a-3"]


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecipeError, match=r"output.folder: cannot be written"):
        new_run_folder(tmp_path / "file" / "runs", "a")


def test_a_folder_takes_the_place_of_the_old_one(tmp_path):
    for name, text in (("model", "old"), ("model.tmp", "new")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").write_text(text)
    replace_folder(tmp_path / "model.tmp", tmp_path / "model")
    assert (tmp_path / "model" / "weights").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
