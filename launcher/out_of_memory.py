"""Out of memory all the same: what to start again with, and how."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from launcher.build import Session
from launcher.errors import MemoryExceededError
from launcher.plan import Plan
from launcher.strategies import ALL

SMALLER = 0.75  # of the micro-batch that did not fit
MOST_RELAUNCHES = 3
_RELAUNCHES = "FRUGAL_LAUNCHER_RELAUNCHES"


def memory_exceeded(session: Session, error: BaseException) -> MemoryExceededError:
    """The error to end with; its `overrides` start the same run with smaller micro-batches."""
    worst = session.cutter.worst(session.plan.recipe.training.batch_size).examples
    length = session.cutter.padded_length(worst)
    size = f"micro-batches of up to {len(worst)} x {length} tokens"
    problems = [f"out of memory with {size}: {str(error).splitlines()[0]}"]
    overrides: tuple[str, ...] = ()
    if len(worst) == 1:
        problems.append("one text alone does not fit; allow more by memory.allow, or cut with strategies.max_length")
    else:
        overrides = tuple(_smaller(session, len(worst), length))
        problems.append("the same update in smaller micro-batches: add " + " ".join(f"'{one}'" for one in overrides))
    return MemoryExceededError("memory", problems, overrides)


def _smaller(session: Session, examples: int, length: int) -> Iterator[str]:
    """Every choice as it was made, so that only the micro-batches differ."""
    limits, plan = session.cutter.limits, session.plan
    longest = int(session.cutter.padding.padded(session.cutter.lengths).max())
    tokens = min(SMALLER * examples, examples - 1) * limits.size(length)
    tokens = max(math.ceil(tokens), math.ceil(limits.size(longest)))
    yield f"strategies.gradient_accumulation={{tokens: {tokens}, attention: {limits.attention:.6f}}}"
    yield from _others(plan)


def _others(plan: Plan) -> Iterator[str]:
    chosen = {strategy.key: strategy for strategy in plan.strategies}
    for cls in ALL:
        if cls.key == "gradient_accumulation" or not plan.recipe.strategies.is_open(cls.key):
            continue
        if cls.key in chosen:
            fields = chosen[cls.key].model_dump(mode="json", exclude_none=True)
            yield f"strategies.{cls.key}={json.dumps(fields) if fields else 'true'}"
        elif cls.cost != "free":
            yield f"strategies.{cls.key}=false"


def relaunches() -> list[str]:
    """What has ended so before this run, in this chain of starts."""
    return list(json.loads(os.environ.get(_RELAUNCHES, "[]")))


def can_relaunch(error: MemoryExceededError) -> bool:
    """Whether smaller micro-batches are left to try."""
    return bool(error.overrides) and len(relaunches()) < MOST_RELAUNCHES


def relaunch(recipe: Path, overrides: Sequence[str], processes: int, error: MemoryExceededError) -> NoReturn:
    """This process becomes a new one, which gives all memory back."""
    os.environ[_RELAUNCHES] = json.dumps([*relaunches(), error.problems[0]])
    named = tuple(one.partition("=")[0] for one in error.overrides)
    kept = [one for one in overrides if not one.startswith(named)]
    sys.stdout.flush()
    sys.stderr.flush()
    asked = ["run", "--processes", str(processes), str(recipe), *kept, *error.overrides]
    os.execv(sys.executable, [sys.executable, "-m", "launcher", *asked])
