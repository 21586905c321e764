"""bench/device_check.py from end to end as far as a CPU goes: every section brings its rows, and a table of them."""

from __future__ import annotations

import json
import sys

import pytest

from bench.device_process import Job, Rows
from bench.device_report import spearman, write_report
from launcher.devices import find_device
from launcher.units import MIB
from tests.launches.commands import ROOT, start

pytestmark = pytest.mark.launch
SCRIPT = [sys.executable, str(ROOT / "bench" / "device_check.py")]
ROWS = {
    "forecast": ["bert-base, AdamW", "bert-large, offload", "gpt2, uneven, by tokens"],
    "context": ["context"],
    "cap": ["cap", "cap, Adafactor allowed"],
    "accuracy": ["bert-base, AdamW", "bert-large, offload", "gpt2, uneven, by tokens"],
    "exact": ["its own chunks", "chunks of 1 MiB"],
}


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """What one run leaves: rows by section, and the report."""
    folder = tmp_path_factory.mktemp("check")
    done = start([*SCRIPT, "--cpu", "--out", str(folder / "out"), "--work", str(folder)], cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    sections = {path.stem: json.loads(path.read_text()) for path in (folder / "out").glob("*.json")}
    return folder, sections, (folder / "out" / "device_check.md").read_text()


def test_every_section_brings_its_rows_and_none_fails(checked):
    _, sections, _ = checked
    assert {name: sorted(sections[name]) for name in ROWS} == {name: sorted(rows) for name, rows in ROWS.items()}
    assert [row for rows in sections.values() for row in rows.values() if "error" in row] == []
    assert sections["context"]["context"] == {"skipped": "there is no card"}
    assert "a CPU trains in bf16 or float32" in sections["half"]["fp16"]["skipped"]
    assert sections["half"]["float32"]["finite"]
    assert len(sections["speed"]) == 3 * 4  # rounds and contestants


def test_what_is_forecast_is_what_is_measured(checked):
    _, sections, _ = checked
    for name, row in sections["accuracy"].items():
        forecast = sections["forecast"][name]
        assert forecast["tensors"] == pytest.approx(row["train"]["tensors"], rel=1e-4), name
        assert forecast["phases"]["evaluate"] == pytest.approx(row["evaluate"]["tensors"], rel=1e-4), name
        assert min(forecast["seconds"], row["seconds"]) > 0


def test_runs_within_a_budget_train_all_their_updates_below_it(checked):
    _, sections, _ = checked
    for row in sections["cap"].values():
        assert row["results"]["budget"]["kept"]
        assert row["results"]["updates"] == len(row["losses"]) == 4


def test_the_offloaded_optimizer_is_exact(checked):
    assert {row["different"] for row in checked[1]["exact"].values()} == {0}


def test_the_report_has_a_part_for_each_section(checked):
    *_, report = checked
    titles = [line.removeprefix("## ") for line in report.splitlines() if line.startswith("## ")]
    assert titles[:4] == ["Forecast", "Seconds of the largest update", "Within the budget", "Speed"]
    assert len(titles) == 7
    for row in ROWS["forecast"]:
        assert report.count(f"| {row} |") == 2
    assert "0 of 7 tensors and their states differ" in report


def test_started_again_it_does_only_what_is_missing(checked):
    folder, sections, _ = checked
    out = folder / "out"
    kept = {path.name: path.read_bytes() for path in out.iterdir()}
    rows = sections["accuracy"] | {"gpt2, uneven, by tokens": {"error": "ended after 1 s"}}
    (out / "accuracy.json").write_text(json.dumps(rows))
    done = start([*SCRIPT, "--cpu", "--out", str(out), "--work", str(folder)], cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    again = json.loads((out / "accuracy.json").read_text())
    assert again["bert-base, AdamW"] == sections["accuracy"]["bert-base, AdamW"]
    assert again["gpt2, uneven, by tokens"]["train"] == sections["accuracy"]["gpt2, uneven, by tokens"]["train"]
    changed = {path.name for path in out.iterdir() if path.read_bytes() != kept[path.name]}
    assert changed <= {"accuracy.json", "device_check.md"}


def test_a_section_that_is_not_reached_says_so_and_is_open_still(tmp_path):
    command = [*SCRIPT, "--cpu", "--out", str(tmp_path), "--work", str(tmp_path), "--only", "exact", "--seconds", "0"]
    assert start(command, cwd=tmp_path).returncode == 1
    assert json.loads((tmp_path / "exact.json").read_text()) == {"exact": {"error": "no time was left"}}
    assert "exact: no time was left" in (tmp_path / "device_check.md").read_text()
    assert Rows(tmp_path, "exact").is_open("exact")


def test_a_process_that_takes_too_long_ends_with_what_it_started_and_its_rows_stay(tmp_path):
    code = "import subprocess, sys; print('{\"name\": \"first\"}', flush=True); subprocess.run(['sleep', '60'])"
    rows = list(Job("slow", [sys.executable, "-c", code], tmp_path, {}).rows(2))
    assert rows == [{"name": "first"}, {"name": "slow", "error": "ended after 2 s"}]


def test_a_process_that_fails_brings_its_last_words(tmp_path):
    rows = list(Job("bad", [sys.executable, "-c", "raise ValueError('no')"], tmp_path, {}).rows(30))
    assert rows == [{"name": "bad", "error": 'exit code 1: File "<string>", line 1, in <module> | ValueError: no'}]


def test_what_a_card_brings_is_reported(tmp_path):
    """Rows as only a card has them."""
    size, device = 2**30, find_device("H200")
    peak = {"allocated": 110 * MIB, "reserved": 120 * MIB}
    planned = {"allocated": 100 * MIB, "reserved": 120 * MIB, "phases": {"evaluate": 55 * MIB}}
    cases = {name: planned | {"seconds": number} for number, name in enumerate("abc", start=1)}
    fact = {"train": peak, "evaluate": {"allocated": 50 * MIB, "reserved": 120 * MIB}, "workspaces": 10 * MIB}
    step = {"context": 500 * MIB, "allocated": 512, "reserved": 2 * MIB, "failed": None}
    rows = {
        "forecast": cases | {"d": {"skipped": "no units for it"}},
        "accuracy": {name: fact | {"seconds": 2 * row["seconds"]} for name, row in cases.items()},
        "context": {
            "a tensor": step,
            "8-bit AdamW": step | {"failed": "ImportError: no library"},
            "card": {"total": size, "before": size},
            "attention in torch.float16, without": {"kernel": "CUDNN_ATTENTION"},
            "limit": {"kept": True, "says": "CUDA out of memory"},
            "pinned": {"asynchronous": True, "link": 5e10},
        },
        "cap": {
            "relaunch": {
                "left": size,
                "results": {"updates": 2, "examples_per_second": 10.0, "relaunches": ["out of memory"]},
                "losses": [1.4, 1.3],
                "plan": {"budget": None, "strategies": {"gradient_accumulation": {}}},
            }
        },
    }
    for name, content in rows.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    write_report(tmp_path, device, {"device": {}, "torch": "2.13.0+cu130"})
    lines = (tmp_path / "device_check.md").read_text().splitlines()
    assert lines[0].startswith("# H200, ")
    assert "| a | 100.0 | 110.0 | -9.09 % | 120.0 | 120.0 | +0.00 % | +10.00 % | 10.0 | +0.00 % |" in lines
    assert "- allocated: median 9.09 %, largest -9.09 %, 3 cases" in lines
    assert "- d: no units for it" in lines
    assert "Spearman 1.000 over 3 cases" in lines
    assert "| a tensor | 500.0 | 0.0 | 2.0 |" in lines
    assert "- 8-bit AdamW: ImportError: no library" in lines
    assert "- attention in torch.float16, without: CUDNN_ATTENTION" in lines
    assert any(line.startswith("| relaunch | - | - | - | - | - | 2 | 1.400 to 1.300 | 10.0 | 1 |") for line in lines)


def test_equal_values_share_a_rank():
    assert spearman([1, 2, 2, 3], [10, 20, 20, 30]) == pytest.approx(1)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)


def test_without_a_card_the_full_check_says_what_needs_none(tmp_path):
    done = start([*SCRIPT, "--out", str(tmp_path)], cwd=tmp_path)
    assert done.returncode == 1
    assert "--cpu and --plan-only CARD need none" in done.stderr
