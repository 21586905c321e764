"""What a person asked a plan for: devices and budgets, and the command that trains by the answer."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from launcher.devices import Device, find_device
from launcher.errors import RecipeError
from launcher.job import Job
from launcher.machine import free_memory
from launcher.planner.proposal import Proposal
from launcher.units import parse_bytes, write_bytes


def find_devices(text: str | None) -> list[Device]:
    """Those named, separated by commas; RecipeError for what is not in the table."""
    return [find_device(name) for name in text.split(",")] if text else []


def find_targets(job: Job, devices: Sequence[Device], budgets: str | None) -> list[tuple[Device, int]]:
    """Every device with every budget; without budgets the recipe's, else all that the device has."""
    sizes = [_size(text) for text in budgets.split(",")] if budgets else [job.recipe.memory.budget]
    is_here = not devices
    return [
        (device, budget_on(device, size, is_here=is_here))
        for device in devices or [job.machine.device]
        for size in sizes
    ]


def find_gpus(text: str | None) -> list[int]:
    """`8`, `1,2,8`, or `1..64`, which doubles from one to the other; RecipeError for anything else."""
    try:
        if text is None:
            return [1]
        first, dots, last = text.partition("..")
        if not dots:
            counts = [int(one) for one in text.split(",")]
        else:
            counts = [int(first)]
            while counts[0] > 0 and counts[-1] * 2 <= int(last):
                counts.append(counts[-1] * 2)
        if min(counts) < 1:
            raise ValueError
    except ValueError:
        raise RecipeError("--gpus", [f"{text!r} is no number of GPUs; write 8, 1,2,8 or 1..64"]) from None
    return counts


def budget_on(device: Device, size: int | str | None, *, is_here: bool) -> int:
    """Bytes. `auto`, and no budget at all, is what the device has: of one that is here, what is free of it."""
    if isinstance(size, int):
        return size
    if is_here or device.kind == "cpu" or device.memory is None:
        return free_memory(device)
    return device.memory


def _size(text: str) -> int | str:
    if text.strip() == "auto":
        return "auto"
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise RecipeError("--budget", [str(error)]) from None


def command_of(job: Job, plan: Proposal) -> str:
    """The run plans again, for what is there when it starts: only the budget is written."""
    words = ["accelerate", "launch"]
    if job.nodes > 1:
        words += ["--config_file", "accelerate_configs/many_nodes.yaml"]
    elif job.processes > 1:
        words += ["--multi_gpu", "--num_processes", str(job.processes)]
    words += ["launcher/run.py", str(job.path), *job.overrides]
    if job.recipe.memory.budget != plan.budget:
        words.append(f"memory.budget={write_bytes(plan.budget)}")
    return shlex.join(words)
