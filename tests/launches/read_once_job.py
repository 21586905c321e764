"""One process of a launch, as `accelerate launch` starts it, that counts what it does.

read_once_job.py FOLDER RECIPE [--train] [--die-in-writing]

FOLDER/RANK.json holds: texts given to the tokenizer, whether processes had met by then, and what it holds in the end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from launcher import pipeline
from launcher.check import check
from launcher.data import Examples
from launcher.load import Loaded, load_data
from launcher.machine import started_processes, started_rank
from launcher.plan import make_plan
from launcher.tasks import SequenceClassification

SEEN: dict[str, Any] = {"texts": 0, "met": False}


def count_texts() -> None:
    encode = SequenceClassification.encode

    def counted(self: Any, rows: Any, tokenizer: Any, max_length: int | None) -> Any:
        SEEN["texts"] += len(rows["text"]) if max_length is None else 0  # those that are cut are given to it twice
        SEEN["met"] |= torch.distributed.is_initialized()
        return encode(self, rows, tokenizer, max_length)

    SequenceClassification.encode = counted  # type: ignore[method-assign]


def die_in_writing() -> None:
    """The tokens are written, labels and lengths are not yet."""
    import numpy as np

    np.save = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]


def content(examples: Examples | None) -> Any:
    if examples is None:
        return None
    lengths = examples.lengths
    return [examples.tokens.to_dict(), examples.labels, lengths.used.tolist(), lengths.full.tolist()]


def main(folder: Path, recipe: Path, *options: str) -> None:
    count_texts()
    if "--die-in-writing" in options:
        die_in_writing()
    job = check(recipe, processes=started_processes())
    held: list[Loaded] = []

    def keep(plan: Any) -> Loaded:
        held.append(load_data(plan))
        return held[0]

    pipeline.load_data = keep  # type: ignore[assignment]
    if "--train" in options:
        pipeline.run(job)
    else:
        keep(make_plan(job))
    answer = SEEN | {"train": content(held[0].train), "held": content(held[0].held), "labels": held[0].labels}
    (folder / f"{started_rank()}.json").write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(Path, sys.argv[2:3]), *sys.argv[3:])
