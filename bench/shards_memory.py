"""Memory of each of two processes that share a model of 335 M parameters, beside the forecast.

    python bench/shards_memory.py [--folder /tmp/shards] [--forms ddp zero_3 fsdp]

BERT-large's shape with random weights, AdamW, micro-batches of up to 128 tokens, float32 on CPUs. `peak` is what a
counter before the allocator saw in the second update, `resident` the kernel's figure for the whole process, libraries
and all. Needs a C compiler, 3 GB of disk and 16 GB of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from launcher.check import check  # noqa: E402
from launcher.devices import CPU  # noqa: E402
from launcher.forecast.trace import trace_plan  # noqa: E402
from launcher.load import load_data  # noqa: E402
from launcher.plan import make_plan  # noqa: E402
from launcher.units import format_bytes  # noqa: E402
from tests.conftest import forget_forms, make_tiny_model  # noqa: E402
from tests.launches.commands import ACCELERATE, TWO, start  # noqa: E402

FORMS = {
    "ddp": {},
    "zero_1": {"zero": {"stage": 1}},
    "zero_2": {"zero": {"stage": 2}},
    "zero_3": {"zero": {"stage": 3}},
    "fsdp": {"fsdp": {"reshard": True}},
}
LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    options = parser.parse_args()
    counter = ROOT / "tests" / "forecast" / "allocations.c"
    print("| form, 2 processes | forecast | peak | error | resident | resident less what was there before |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        library = folder / "allocations.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", counter, "-o", library, "-ldl"], check=True)
        model = make_tiny_model(folder / "model", **LARGE)
        for name in options.forms:
            print(row(name, folder, model, library), flush=True)


def row(name: str, folder: Path, model: Path, library: Path) -> str:
    """Of one form, in processes of its own."""
    recipe = write(folder / name, name, model)
    done = start(
        [*ACCELERATE, *TWO, str(ROOT / "tests" / "forecast" / "several_job.py"), str(recipe.parent)],
        cwd=folder,
        limit=3600,
        LD_PRELOAD=str(library),
    )
    if done.returncode != 0:
        raise SystemExit(done.stderr[-4000:])
    answers = [json.loads((recipe.parent / f"peaks-{rank}.json").read_text())[name] for rank in (0, 1)]
    largest = max(answers, key=lambda answer: answer["peak"])
    os.environ.pop("ACCELERATE_USE_CPU", None)
    forget_forms()
    plan = make_plan(check(recipe, processes=2))
    found = trace_plan(plan, load_data(plan), CPU).peak.size
    resident = max(answer["resident"] for answer in answers)
    cells = [format_bytes(found), format_bytes(largest["peak"]), f"{100 * (found / largest['peak'] - 1):+.2f} %"]
    cells += [format_bytes(resident), format_bytes(resident - largest["before"])]
    return f"| {name} | {' | '.join(cells)} |"


def write(folder: Path, name: str, model: Path) -> Path:
    folder.mkdir()
    rows = [f"{['good', 'bad', 'room', 'night'][number % 4]} " * 40 + f",{number % 2}" for number in range(8)]
    (folder / "rows.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    content = {
        "name": name,
        "model": {"source": str(model)},
        "task": {"type": "sequence_classification"},
        "data": {"train": "rows.csv"},
        "training": {"batch_size": 4, "updates": 2, "learning_rate": 1e-5},
        "strategies": {"max_length": {"tokens": 64}, "gradient_accumulation": {"tokens": 128}},
    }
    content["strategies"] |= FORMS[name]
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


if __name__ == "__main__":
    main()
