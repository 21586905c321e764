"""Predicted step time against published: nine ways to train BERT-large on one V100 16 GB, and how well they rank.

    python bench/step_time.py

Runs each way's training step on fake tensors; no card is needed. Then varies what the roofline assumes.
"""

from __future__ import annotations

import logging
import sys
from itertools import product
from pathlib import Path

import numpy as np
import transformers

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from launcher.devices import find_device  # noqa: E402
from launcher.forecast.work import BANDWIDTH_SHARE, MATRIX_SHARE, Work  # noqa: E402
from tests.forecast.published import PUBLISHED, agreement, speeds, varied, works  # noqa: E402

MATRICES = (0.4, 0.5, 0.6, 0.75, 0.9, 1.0)
BANDWIDTHS = (0.5, 0.65, 0.8, 1.0)
LAUNCHES = (0, 2, 4, 6, 8, 10, 12, 15, 20, 30)  # microseconds


def main() -> None:
    logging.disable(logging.WARNING)
    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    found = works()
    print_table(found)
    print_sensitivity(found)


def print_table(found: list[Work]) -> None:
    card = find_device("V100")
    published, predicted = [setting.speed for setting in PUBLISHED], speeds(found, card)
    print("| micro-batch and setting | published, samples/s | rank | predicted | rank | predicted / published |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for setting, speed, first, second in zip(PUBLISHED, predicted, ranks(published), ranks(predicted), strict=True):
        row = f"| {setting.name} | {setting.speed:.2f} | {first} | {speed:.2f} | {second} |"
        print(f"{row} {speed / setting.speed:.2f} |")
    print(
        f"\nSpearman {agreement(found, card):.3f} with shares {MATRIX_SHARE} of matrix rates and {BANDWIDTH_SHARE} of "
        f"bandwidth, {1e6 * card.launch:.0f} us a kernel at the least\n"
    )


def print_sensitivity(found: list[Work]) -> None:
    card = find_device("V100")
    print("| us a kernel | lowest Spearman | highest | share of matrix and bandwidth shares with 0.95 or more |")
    print("| ---: | ---: | ---: | ---: |")
    for launch in LAUNCHES:
        pairs = product(MATRICES, BANDWIDTHS)
        values = np.array([agreement(found, varied(card, *pair, launch / 1e6)) for pair in pairs])
        good = (values > 0.95 - 1e-9).mean()
        print(f"| {launch} | {values.min():.3f} | {values.max():.3f} | {100 * good:.0f} % |")
    print(f"\nmatrix shares {MATRICES}, bandwidth shares {BANDWIDTHS}, all pairs")


def ranks(values: list[float]) -> list[int]:
    """1 is the fastest."""
    return [1 + sum(other > value for other in values) for value in values]


if __name__ == "__main__":
    main()
