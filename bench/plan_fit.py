"""Plans for eight models on six cards with all of their memory, each traced once more in a process of its own.

    python bench/plan_fit.py [--models bert-base gpt2 ...]

Configs alone, no weights and no card; texts as long as hotel reviews (median 60 tokens, at most 512), batch 32. Prints
what each plan sets and takes, and ends with an error where a plan's second trace is above its budget.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from pathlib import Path

import transformers

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from launcher.errors import BudgetError  # noqa: E402
from launcher.forecast.start import forecast  # noqa: E402
from launcher.planner.combinations import describe  # noqa: E402
from launcher.planner.search import demand  # noqa: E402
from launcher.units import format_bytes, format_seconds  # noqa: E402
from tests.planner.fits import MODELS, Target, overrides_of, plans, review_lengths, write_rows  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    start, too_large = time.perf_counter(), 0
    print("| model | card | budget | traced | set by the plan | per epoch | found in |")
    print("| --- | --- | ---: | ---: | --- | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("FRUGAL_LAUNCHER_CACHE", str(Path(folder) / "cache"))
        rows = write_rows(Path(folder) / "rows.jsonl", review_lengths(400))
        for name in options.models:
            for target in plans(name, Path(folder), rows):
                row, fits = describe_target(target)
                too_large += not fits
                print(row, flush=True)
    print(f"\n{format_seconds(time.perf_counter() - start)} in all; {too_large} above their budget")
    sys.exit(bool(too_large))


def describe_target(target: Target) -> tuple[str, bool]:
    """A row of the table, and whether the plan stays below its budget by its second trace."""
    head = f"| {target.model} | {target.device.name} | {format_bytes(target.budget)} |"
    found, took = target.answer, f"{target.seconds:.0f} s |"
    if isinstance(found, BudgetError):
        return f"{head} - | {found.problems[0]}; {found.problems[-1]} | - | {took}", True
    again = forecast(target.recipe, overrides_of(found), target.device)
    total = demand(again) + found.context
    what = ", ".join(describe(strategy) for strategy in found.chosen().values()) or "the recipe as it stands"
    row = f"{head} {format_bytes(total)} | {what} | {format_seconds(found.seconds_per_epoch)} | {took}"
    return row, again == found.forecast and total + found.margin <= target.budget


if __name__ == "__main__":
    main()
