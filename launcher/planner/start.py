"""A plan from a process of its own, or from the last time the same was asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from launcher import cache
from launcher.calibration import calibration_of
from launcher.data_source import sources_of
from launcher.devices import Device
from launcher.errors import BudgetError
from launcher.forecast.start import ask, error_from
from launcher.job import Job
from launcher.planner.proposal import Proposal
from launcher.sources import stamp

Target = tuple[Device, int]  # and the budget on it, bytes


def plan(job: Job, targets: Sequence[Target]) -> list[Proposal | BudgetError]:
    """One answer for each target, for one of the job's processes; those that ask at once plan once."""
    asked = [[asdict(device), budget] for device, budget in targets]
    world = {"processes": job.processes, "nodes": job.nodes}
    request = {"recipe": str(job.path), "overrides": job.overrides, "targets": asked} | world
    key, on_cpu = _key(job, asked), any(device.kind == "cpu" for device, _ in targets)
    if key is None:
        return [_read(answer) for answer in ask("plan", request, on_cpu=on_cpu)]
    answers = cache.read("plans", key)
    if answers is None:
        with cache.alone("plans", key):
            answers = cache.read("plans", key) or ask("plan", request, on_cpu=on_cpu)
            cache.write("plans", key, answers)
    return [_read(answer) for answer in answers]


def _read(answer: dict[str, Any]) -> Proposal | BudgetError:
    if "problems" not in answer:
        return Proposal.from_json(answer)
    error = error_from(answer)
    assert isinstance(error, BudgetError)
    return error


def _key(job: Job, asked: list[list[Any]]) -> str | None:
    """Of all that a plan depends on; None where that cannot be known here, as of a hub's model or data."""
    recipe = job.recipe
    sources = sources_of(recipe.data, recipe.base)
    if job.model is None or any(source.format == "hub" for source in sources):
        return None
    files = [file for source in sources for file in source.files] + sorted(job.model.folder.iterdir())
    seen = [stamp(file) for file in files]
    shown = [asdict(calibration_of(device["name"])) for device, _ in asked]
    content = recipe.model_dump(mode="json", exclude={"name", "output"})
    world = [job.processes, job.nodes]
    return cache.fingerprint(recipe=content, files=seen, processes=world, targets=asked, shown=shown)
