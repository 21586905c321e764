"""Forecast against fact: peak memory on fake tensors beside the allocator's own events of a real run on this CPU.

    python bench/forecast_accuracy.py [--families bert gpt2 ...]

Every family of tests/families.py with every variant below: small models with random weights, real training steps.
Prints each error and, at the end, a table by variant with the median, the 95th percentile and the largest of all.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from pathlib import Path

import numpy as np
import transformers
import yaml
from accelerate.state import AcceleratorState

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from launcher.errors import RecipeError  # noqa: E402
from tests.conftest import make_rows, session_from  # noqa: E402
from tests.families import FAMILIES, make_family  # noqa: E402
from tests.forecast.real_peak import forecast_peak, real_peak  # noqa: E402

OFF = {"uniform_dynamic_padding": False}
VARIANTS: dict[str, dict[str, object]] = {
    "AdamW, whole batch": OFF,
    "accumulation, uneven lengths": {"gradient_accumulation": {"tokens": 256}, "uniform_dynamic_padding": True},
    "gradient checkpointing": OFF | {"gradient_checkpointing": True, "gradient_accumulation": {"micro_batch": 8}},
    "Adafactor": OFF | {"adafactor": True},
    "8-bit AdamW": OFF | {"eight_bit_optimizer": True},
    "frozen embeddings": OFF | {"freezing": {"embeddings": True}},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    errors: dict[str, dict[str, float]] = {variant: {} for variant in VARIANTS}
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.jsonl"
        rows.write_text("".join(json.dumps(row) + "\n" for row in make_rows(56)), encoding="utf-8")
        for family in options.families:
            model = make_family(family, Path(folder) / family)
            for variant in VARIANTS:
                try:
                    errors[variant][family] = measure(model, rows, variant)
                    told = f"{100 * errors[variant][family]:+.2f} %"
                except RecipeError as error:
                    told = f"not possible: {error.problems[0]}"
                print(f"{family:12} {variant:30} {told}", file=sys.stderr, flush=True)
    print_table(errors)


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
    real = real_peak(session_from(path))
    return forecast_peak(path) / real - 1


def print_table(errors: dict[str, dict[str, float]]) -> None:
    print("| variant | families | median | largest | lowest |\n| --- | ---: | ---: | ---: | ---: |")
    for variant, found in errors.items():
        values = np.array(list(found.values()))
        print(
            f"| {variant} | {len(values)} | {100 * np.median(np.abs(values)):.2f} % "
            f"| {100 * values.max():+.2f} % | {100 * values.min():+.2f} % |"
        )
    every = np.abs([error for found in errors.values() for error in found.values()])
    print(
        f"\n{len(every)} combinations: median {100 * np.median(every):.2f} %, "
        f"95th percentile {100 * np.percentile(every, 95):.2f} %, largest {100 * every.max():.2f} %"
    )


if __name__ == "__main__":
    main()
