"""A run with a budget: planned before anything starts, and held to it."""

from __future__ import annotations

import logging

import torch

from launcher.errors import BudgetError, LauncherError
from launcher.job import Job
from launcher.planner.asked import budget_on
from launcher.planner.proposal import Proposal
from launcher.planner.start import plan
from launcher.simulated_card import SimulatedCard
from launcher.units import format_bytes, format_seconds

log = logging.getLogger(__name__)


def plan_for_budget(job: Job) -> Proposal | None:
    """None where the recipe names no budget. BudgetError where nothing fits."""
    if job.recipe.memory.budget is None:
        return None
    if job.processes > 1 and job.recipe.memory.budget == "auto":
        problem = "budget: auto differs from process to process, and all must train by one plan; write a size"
        raise BudgetError("memory.budget", [problem])
    (answer,) = plan(job, [(job.device, budget_on(job.device, job.recipe.memory.budget, is_here=True))])
    if isinstance(answer, LauncherError):
        raise answer
    return answer


def cap(proposal: Proposal, device: torch.device) -> SimulatedCard | None:
    """More than the budget is out of memory from now on: by torch's own limit, or on a simulated card on a CPU."""
    epoch = format_seconds(proposal.seconds_per_epoch)
    sizes = f"{format_bytes(proposal.total)} of {format_bytes(proposal.budget)}"
    log.info("plan: %s forecast, about %s per epoch", sizes, epoch)
    if proposal.device.kind == "cpu":
        return SimulatedCard(proposal.budget)
    memory = torch.cuda.get_device_properties(device).total_memory
    share = min(1.0, (proposal.budget - proposal.context) / memory)
    torch.cuda.set_per_process_memory_fraction(share, device)
    return None
