"""What starting one micro-batch costs beside its work: the figure behind OVERHEAD_TOKENS in launcher/build.py.

    python bench/micro_batch_cost.py MODEL_FOLDER [MODEL_FOLDER ...] [--device cuda]

Times forward and backward at many (examples, length) points and fits seconds = a + b x work to the cutter's own work,
examples x length x (1 + length x attention). a / b is the overhead in tokens. Each model has two rows: with the
cutter's attention term, and with the one that fits best.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from launcher.build import cost_model

Points = dict[tuple[int, int], float]

# Small and large, short and long; all within what one update is cut into.
POINTS = [(m, length) for length in (8, 16, 32, 64, 128, 256) for m in (1, 2, 4, 8, 16, 32) if m * length <= 1024]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    print("| model | attention | a, ms | b, us per token | a / b, tokens | rms error |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for source in options.models:
        model = AutoModelForSequenceClassification.from_pretrained(source, dtype=torch.float32)
        seconds = measure(model.to(options.device).train(), options.rounds)
        counted = cost_model(model.device.type, model.config).attention
        for attention in (counted, fit_attention(seconds)):
            a, b, error = fit(seconds, attention)
            row = f"{attention:.5f} | {1e3 * a:.1f} | {1e6 * b:.0f} | {a / b:.0f} | {error:.1%}"
            print(f"| {Path(source).name} | {row} |", flush=True)


def measure(model: PreTrainedModel, rounds: int) -> Points:
    """Of each point the least of its rounds, in seconds: whatever else the machine does can only add to it."""
    seconds = dict.fromkeys(POINTS, float("inf"))
    once(model, *POINTS[-1])
    for number in range(rounds):
        for point in POINTS:
            seconds[point] = min(seconds[point], once(model, *point))
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return seconds


def fit(seconds: Points, attention: float) -> tuple[float, float, float]:
    """a and b in seconds, and the relative error that is left; errors count relative to the point's own time."""
    measured = np.array(list(seconds.values()))
    work = np.array([m * length * (1 + length * attention) for m, length in seconds])
    (a, b), *_ = np.linalg.lstsq(np.stack([1 / measured, work / measured], axis=1), np.ones(len(work)))
    return float(a), float(b), float(np.sqrt(np.mean(((a + b * work) / measured - 1) ** 2)))


def fit_attention(seconds: Points) -> float:
    """The attention term that these times speak for, beside the cutter's, which counts multiplications."""
    tried: list[float] = np.linspace(0, 0.02, 401).tolist()
    return min(tried, key=lambda attention: fit(seconds, attention)[2])


def once(model: PreTrainedModel, examples: int, length: int) -> float:
    """Seconds of one forward and backward onto gradients that are there already."""
    ids = torch.randint(5, 1000, (examples, length), device=model.device)
    mask = torch.ones_like(ids)
    mask[:-1, length - length // 8 :] = 0  # some padding, as in most micro-batches: it decides the attention kernel
    wait(model.device)
    start = time.perf_counter()
    model(input_ids=ids, attention_mask=mask).logits.sum().backward()
    wait(model.device)
    return time.perf_counter() - start


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
