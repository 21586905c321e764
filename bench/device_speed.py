"""Speed within a budget beside speed without, and what all jobs of bench/device_check.py share."""

from __future__ import annotations

import copy
import gc
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState, GradientState
from device_cases import job_of

from launcher.batches import UpdateSampler
from launcher.build import Parts, build_session
from launcher.load import load_parts
from launcher.plan import Plan, make_plan
from launcher.planner.proposal import Proposal
from launcher.planner.start import plan as find_plan
from launcher.processes import start_form
from launcher.train import train_update

HAS_CARD = torch.cuda.is_available()
ROUNDS, TURN_UPDATES, TURN_SECONDS = 3, 6, 6.0


def say(**row: Any) -> None:
    """A row for whoever started this process."""
    print(json.dumps(row), flush=True)


def speed(folder: Path, budget: str, *earlier: str) -> None:
    """The plan for the budget, the fixed recipe and no budget at all, in turn; `earlier`: a run's plan.json."""
    fixed = [
        "strategies.uniform_dynamic_padding=false",
        "strategies.gradient_accumulation.micro_batch=1",
        "strategies.gradient_checkpointing=true",
        "strategies.adafactor=true",
    ]
    job = job_of(folder, "speed", (f"memory.budget={budget}",))
    size = job.recipe.memory.budget
    assert isinstance(size, int)
    (planned,) = find_plan(job, [(job.device, size)])
    if not isinstance(planned, Proposal):
        raise planned
    contestants = {
        "no budget": (make_plan(job_of(folder, "speed")), None),
        "the fixed recipe": (make_plan(job_of(folder, "speed", tuple(fixed))), None),
        f"the plan for {budget}": (make_plan(job, planned.chosen(), planned.cost), planned),
    }
    for path in earlier:
        whole = Proposal.from_json(json.loads(Path(path).read_text())["budget"])
        plan = make_plan(job_of(folder, "cap"), whole.chosen(), whole.cost)
        contestants[f"the plan for {budget}, nothing cut"] = plan, whole
    parts = {name: load_parts(plan) for name, (plan, _) in contestants.items()}
    for number in range(ROUNDS):
        for name, (plan, proposal) in contestants.items():
            say(name=f"{name}, round {number + 1}", contestant=name, **turn(plan, proposal, parts[name], number))


def turn(plan: Plan, proposal: Proposal | None, parts: Parts, seed: int) -> dict[str, Any]:
    """Some updates after one to warm up; all contestants of a round draw the same examples."""
    fresh_start()
    if HAS_CARD:
        total = torch.cuda.get_device_properties(0).total_memory
        room = 1.0 if proposal is None else min(1.0, (proposal.budget - proposal.context) / total)
        torch.cuda.set_per_process_memory_fraction(room)
        torch.cuda.reset_peak_memory_stats()
    parts = replace(parts, model=copy.deepcopy(parts.model))
    session = build_session(plan, start_form(plan), parts)
    session.set_train_mode()
    sampler = UpdateSampler(len(parts.train), plan.recipe.training.batch_size, seed)
    start, examples, micro_batches = 0.0, 0, 0
    for number, indices in enumerate(sampler.updates(0, 1 + TURN_UPDATES)):
        update = session.cutter.cut(indices)
        float(train_update(session, update).loss)
        synchronize()
        if number == 0:
            start = time.perf_counter()
            continue
        examples, micro_batches = examples + update.examples, micro_batches + len(update.micro_batches)
        if time.perf_counter() - start > TURN_SECONDS:
            break
    row = {"examples_per_second": examples / (time.perf_counter() - start), "micro_batches": micro_batches / number}
    reserved = torch.cuda.max_memory_reserved() if HAS_CARD else None
    return row | {"reserved": reserved, "strategies": [strategy.key for strategy in plan.strategies]}


def fresh_start() -> None:
    """Accelerate keeps its state for the whole process; what came before gives its memory back."""
    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    gc.collect()
    if HAS_CARD:
        torch.cuda.empty_cache()


def synchronize() -> None:
    if HAS_CARD:
        torch.cuda.synchronize()
