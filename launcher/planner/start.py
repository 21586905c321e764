"""A plan from a process of its own, or from the last time the same was asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from launcher import cache
from launcher.calibration import calibration_of
from launcher.data_source import find_data
from launcher.devices import Device
from launcher.errors import BudgetError, LaunchError
from launcher.forecast.start import ask, error_from
from launcher.job import Job
from launcher.planner.proposal import Proposal

Target = tuple[Device, int]  # and the budget on it, bytes


def plan(job: Job, targets: Sequence[Target]) -> list[Proposal | BudgetError]:
    """One answer for each target. LaunchError for several processes: gradients on their way between them take more."""
    if job.processes > 1:
        raise LaunchError("memory.budget", ["plans one process so far; take the budget out or write --processes 1"])
    asked = [[asdict(device), budget] for device, budget in targets]
    request = {"recipe": str(job.path), "overrides": job.overrides, "processes": job.processes, "targets": asked}
    key = _key(job, asked)
    answers = cache.read("plans", key) if key is not None else None
    if answers is None:
        answers = ask("plan", request, on_cpu=any(device.kind == "cpu" for device, _ in targets))
        if key is not None:
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
    places = [recipe.data.train]
    if recipe.data.validation is not None and recipe.data.validation.file is not None:
        places.append(recipe.data.validation.file)
    sources = [find_data(place, recipe.base) for place in places]
    if job.model is None or any(source.format == "hub" for source in sources):
        return None
    files = [file for source in sources for file in source.files] + sorted(job.model.folder.iterdir())
    seen = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    shown = [asdict(calibration_of(device["name"])) for device, _ in asked]
    content = recipe.model_dump(mode="json", exclude={"name", "output"})
    return cache.fingerprint(recipe=content, files=seen, processes=job.processes, targets=asked, shown=shown)
