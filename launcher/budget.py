"""A run with a budget: planned before anything starts, and held to it."""

from __future__ import annotations

import logging

import torch

from launcher.errors import LauncherError
from launcher.job import Job
from launcher.planner.asked import budget_on
from launcher.planner.proposal import Proposal
from launcher.planner.start import plan
from launcher.simulated_card import SimulatedCard
from launcher.units import format_bytes, format_seconds

log = logging.getLogger(__name__)


def plan_for_budget(job: Job) -> Proposal | None:
    """None where the recipe names no budget. BudgetError where nothing fits; LaunchError for several processes."""
    if job.recipe.memory.budget is None:
        return None
    (answer,) = plan(job, [(job.device, budget_on(job.device, job.recipe.memory.budget, is_here=True))])
    if isinstance(answer, LauncherError):
        raise answer
    return answer


def cap(proposal: Proposal) -> SimulatedCard | None:
    """More than the budget is out of memory from now on: by torch's own limit, or on a simulated card on a CPU."""
    epoch = format_seconds(proposal.seconds_per_epoch)
    sizes = f"{format_bytes(proposal.total)} of {format_bytes(proposal.budget)}"
    log.info("plan: %s forecast, about %s per epoch", sizes, epoch)
    if proposal.device.kind == "cpu":
        return SimulatedCard(proposal.budget)
    memory = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, (proposal.budget - proposal.context) / memory))
    return None
