"""Forecast against fact: peak memory on fake tensors beside the allocator's own events of a real run on this CPU.

    python bench/forecast_accuracy.py [--families bert gpt2 ...] [--all]

Every family of tests/families.py, 128 wide with 4,000 words and random weights, by real training steps and the largest
evaluation micro-batch: the first variant below, and of the others every third, in turn (--all: every one). Prints each
error and, at the end, a table by variant and one of families tuned on beside those that were held out.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import transformers
import yaml
from accelerate.state import AcceleratorState

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from launcher.errors import LauncherError  # noqa: E402
from launcher.plan import make_plan  # noqa: E402
from tests.conftest import make_rows, session_from  # noqa: E402
from tests.families import FAMILIES, HELD_OUT, make_family  # noqa: E402
from tests.forecast.real_peak import forecast_peak, real_peak  # noqa: E402

WIDTH, WORDS = 128, 4000
OFF = {"uniform_dynamic_padding": False}
FOREACH, LOOP, DROPOUT = "AdamW foreach", "AdamW loop", "dropout 0.1"
VARIANTS: dict[str, dict[str, object]] = {
    "AdamW, whole batch": OFF,
    FOREACH: OFF,
    LOOP: OFF,
    DROPOUT: OFF,
    "accumulation, uneven lengths": {"gradient_accumulation": {"tokens": 256}, "uniform_dynamic_padding": True},
    "checkpointing, accumulation": OFF | {"gradient_checkpointing": True, "gradient_accumulation": {"micro_batch": 8}},
    "Adafactor": OFF | {"adafactor": True},
    "Adafactor, own rate": OFF | {"adafactor": {"preset": "own_rate"}},
    "8-bit AdamW": OFF | {"eight_bit_optimizer": True},
    "frozen: embeddings, half of the layers": OFF | {"freezing": {"embeddings": True, "first_layers": 1}},
    "bf16 autocast": OFF | {"mixed_precision": {"precision": "bf16"}},
    "bf16, checkpointing": OFF
    | {
        "mixed_precision": {"precision": "bf16"},
        "gradient_checkpointing": True,
        "gradient_accumulation": {"micro_batch": 8},
    },
}
# What no recipe says, but Settings can.
OPTIONS = {FOREACH: {"foreach": True}, LOOP: {"foreach": False, "fused": False}}
Errors = dict[tuple[str, str], float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--all", action="store_true", help="every variant of every family")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    errors: Errors = {}
    for number, family in enumerate(options.families):
        first, *others = VARIANTS
        measure_family(family, [first, *(others if options.all else others[number % 3 :: 3])], errors)
    print_variants(errors)
    print_groups(errors)


def measure_family(family: str, variants: list[str], errors: Errors) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = folder / "rows.jsonl"
        rows.write_text("".join(json.dumps(row) + "\n" for row in make_rows(56)), encoding="utf-8")
        for variant in variants:
            dropout = 0.1 if variant == DROPOUT else 0.0
            model = make_family(family, folder / f"model-{dropout}", width=WIDTH, words=WORDS, dropout=dropout)
            try:
                errors[family, variant] = measure(model, rows, variant)
                told = f"{100 * errors[family, variant]:+.2f} %"
            except LauncherError as error:
                told = f"{type(error).__name__}: {error.problems[0]}"
            print(f"{family:12} {variant:38} {told}", file=sys.stderr, flush=True)


def measure(model: Path, rows: Path, variant: str) -> float:
    """(forecast - real) / real."""
    recipe = {
        "name": "accuracy",
        "model": {"source": str(model)},
        "task": {"type": "sequence_classification"},
        "data": {"train": str(rows), "validation": {"share": 0.25}},
        "training": {"batch_size": 24, "updates": 2, "learning_rate": 1.0e-3},
        "strategies": VARIANTS[variant],
    }
    path = rows.with_name("recipe.yaml")
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    AcceleratorState._reset_state(reset_partial_state=True)
    with ExitStack() as stack:
        if variant in OPTIONS:
            for place in ("launcher.plan.make_plan", "launcher.forecast.trace.make_plan"):
                stack.enter_context(patch(place, planner(OPTIONS[variant])))
        real = real_peak(session_from(path))
        return forecast_peak(path) / real - 1


def planner(optimizer_options: dict[str, object]) -> Callable[[Any], Any]:
    """make_plan, with these options of the optimizer."""

    def plan_with_options(job: Any) -> Any:
        plan = make_plan(job)
        plan.settings.optimizer_options = optimizer_options
        return plan

    return plan_with_options


def print_variants(errors: Errors) -> None:
    print("| variant | families | median | highest | lowest |\n| --- | ---: | ---: | ---: | ---: |")
    for variant in VARIANTS:
        values = np.array([error for (_, found), error in errors.items() if found == variant])
        if len(values):
            median = np.median(np.abs(values))
            ends = f"{100 * values.max():+.2f} % | {100 * values.min():+.2f} %"
            print(f"| {variant} | {len(values)} | {100 * median:.2f} % | {ends} |")


def print_groups(errors: Errors) -> None:
    print("\n| families | combinations | median | 95th percentile | largest | under-estimates | largest of them |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, is_held_out in (("tuned on", False), ("held out", True)):
        values = np.array([error for (family, _), error in errors.items() if (family in HELD_OUT) == is_held_out])
        if len(values):
            sizes, below = np.abs(values), values[values < 0]
            shares = " | ".join(f"{100 * x:.2f} %" for x in (np.median(sizes), np.percentile(sizes, 95), sizes.max()))
            lowest = f"{100 * below.min():.2f} %" if len(below) else "none"
            print(f"| {name} | {len(values)} | {shares} | {len(below)} | {lowest} |")


if __name__ == "__main__":
    main()
