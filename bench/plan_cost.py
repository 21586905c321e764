"""What a plan costs: CPU seconds, wall seconds and memory, from nothing and asked again.

    python bench/plan_cost.py

BERT-large for a 4 GB card and a Llama of 7 billion parameters for an 80 GB card, from their configs alone, on texts of
8 to 512 tokens. Each question is a process of its own, with an empty cache the first time.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.conftest import WORDS, make_tiny_model  # noqa: E402


def main() -> None:
    print("| plan | | CPU seconds | wall seconds | peak memory |\n| --- | --- | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        rows = folder / "rows.jsonl"
        generator = np.random.default_rng(0)
        lengths = np.clip(generator.lognormal(4.1, 0.9, 5000), 6, 510).astype(int)
        texts = [" ".join(generator.choice(WORDS, size)) for size in lengths]
        rows.write_text("".join(json.dumps({"text": t, "label": "ab"[i % 2]}) + "\n" for i, t in enumerate(texts)))
        for name, device in (("bert-large", "GTX 1650"), ("llama-7b", "A100 80GB")):
            recipe = write(folder / name, rows)
            os.environ["FRUGAL_LAUNCHER_CACHE"] = str(folder / f"cache-{name}")
            for when in ("from nothing", "asked again"):
                ask(f"{name}, {device}", when, ["plan", str(recipe), "--device", device, "--json"])


def write(folder: Path, rows: Path) -> Path:
    from transformers import BertConfig, LlamaConfig

    make_tiny_model(folder)
    sizes = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    config = BertConfig(vocab_size=30522, **sizes) if folder.name == "bert-large" else LlamaConfig(pad_token_id=0)
    config.save_pretrained(folder)
    tokenizer = folder / "tokenizer_config.json"
    content = json.loads(tokenizer.read_text()) | {"model_max_length": 512}
    tokenizer.write_text(json.dumps(content))
    recipe = {
        "name": folder.name,
        "model": {"source": str(folder)},
        "task": {"type": "sequence_classification"},
        "data": {"train": str(rows), "validation": {"share": 0.1}},
        "training": {"batch_size": 32, "epochs": 1, "learning_rate": 2.0e-5},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return path


def ask(name: str, when: str, arguments: list[str]) -> None:
    """The command in a process; its children's CPU and peak count with it."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "launcher", *arguments], cwd=ROOT, capture_output=True, text=True)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(done.stderr)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    (plan,) = json.loads(done.stdout)
    what = ", ".join(plan["strategies"]) or "as it stands"
    # Largest of all children so far, in KiB on Linux.
    print(f"| {name}: {what} | {when} | {cpu:.1f} | {wall:.1f} | {after.ru_maxrss / 2**20:.2f} GiB |", flush=True)


if __name__ == "__main__":
    main()
