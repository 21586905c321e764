"""Real pretrained models on real text, as the README tells people to run them."""

from __future__ import annotations

import json
import re
import shlex

import pytest
import yaml

from tests.launches.commands import ACCELERATE, ONE, ROOT, start

pytestmark = [pytest.mark.launch, pytest.mark.slow]


def results_of(folder):
    return json.loads((folder / "results.json").read_text())


def test_the_quickstart_learns_bbc_topics(tmp_path):
    command = [*ACCELERATE, *ONE, "launcher/run.py", "recipes/quickstart.yaml", f"output.folder={tmp_path}"]
    done = start(command, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    results = results_of(tmp_path / "quickstart")
    assert results["metrics"]["accuracy"] > 0.90
    assert results["floor"]["accuracy"] < 0.32
    usage = re.search(r"use it: (python -c .*)", done.stdout)
    assert usage is not None, done.stdout
    answer = start([ACCELERATE[0], *shlex.split(usage[1])[1:]], cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr[-3000:]
    assert re.search(r"'label': '(business|entertainment|politics|sports|tech)'", answer.stdout)


def test_the_readme_names_the_commands_that_are_tested():
    readme, makefile = ((ROOT / name).read_text() for name in ("README.md", "Makefile"))
    for command in ("make quickstart", "make test", "accelerate launch launcher/run.py recipes/quickstart.yaml"):
        assert command in readme
    assert "launcher/run.py recipes/quickstart.yaml" in makefile


def test_chinese_hotel_reviews_are_learned_from_a_float16_checkpoint(shared, tmp_path):
    recipe = {
        "name": "hotel",
        "model": {"source": str(shared / "models" / "multilingual-e5-small-zh")},
        "task": {"type": "sequence_classification"},
        "data": {
            "train": str(shared / "data" / "hotel_reviews.csv"),
            "columns": {"text": "review"},
            "max_rows": 1600,
            "validation": {"share": 0.25},
        },
        "training": {"batch_size": 16, "updates": 60, "learning_rate": 1.0e-4, "warmup": 0.1},
        "strategies": {"max_length": {"tokens": 64}},
        "output": {"folder": str(tmp_path)},
    }
    path = tmp_path / "hotel.yaml"
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    done = start([ACCELERATE[0], "-m", "launcher", "run", str(path)], cwd=ROOT, limit=1800, OMP_NUM_THREADS="2")
    assert done.returncode == 0, done.stderr[-3000:]
    results = results_of(tmp_path / "hotel")
    assert results["floor"]["accuracy"] == pytest.approx(0.685, abs=0.002)
    assert results["metrics"]["accuracy"] >= 0.80
    assert "1 row of 7,766 dropped: 1 without 'review'" in done.stdout
