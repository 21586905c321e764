"""A plan as a person reads it: what is set, what it takes, how it got there, what was turned down."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.devices import Device
from launcher.errors import BudgetError
from launcher.job import Job
from launcher.planner.combinations import describe
from launcher.planner.proposal import Proposal
from launcher.screen import Screen
from launcher.units import count, format_bytes, format_seconds

BAR = 40  # letters for the whole budget
MOST_REJECTED = 12


def show_plan(screen: Screen, plan: Proposal, command: str) -> None:
    """One plan in full; `command` trains by it."""
    screen.say(f"Plan for {plan.device.name} within {format_bytes(plan.budget)}")
    for strategy in plan.chosen().values():
        screen.say(f"  {describe(strategy)}")
    if not plan.strategies:
        screen.say("  nothing needs to be set: the recipe fits as it stands")
    screen.say("")
    _show_rows(screen, plan)
    updates = count(plan.updates_per_epoch, "update")
    micro_batches = f"{plan.micro_batches_per_update:.1f} micro-batches each"
    time = format_seconds(plan.seconds_per_epoch)
    basis = "to compare plans by, not a promise"
    if plan.calibration.runs:
        runs = count(plan.calibration.runs, "run")
        basis = f"{plan.calibration.time:.2f} times the roofline, by {runs} on this {plan.device.name}"
    screen.say(f"{updates} per epoch, {micro_batches}; about {time} per epoch ({basis})")
    rows = [[step.name, format_bytes(step.bytes), format_seconds(step.seconds)] for step in plan.ladder]
    screen.table("How it got there", ["step", "memory", "time per epoch"], rows)
    for line in plan.rejected[:MOST_REJECTED]:
        screen.say(f"  not taken: {line}")
    if len(plan.rejected) > MOST_REJECTED:
        screen.say(f"  ... and {len(plan.rejected) - MOST_REJECTED} more (--json has all)")
    screen.say(f"\ntrain: {command}")


def show_plans(screen: Screen, plans: Sequence[Proposal | BudgetError], targets: Sequence[tuple[Device, int]]) -> None:
    """Several devices or budgets, a row each."""
    rows = []
    for (device, budget), plan in zip(targets, plans, strict=True):
        head = [device.name, format_bytes(budget)]
        if isinstance(plan, BudgetError):
            rows.append([*head, "-", "-", _why_not(plan)])
            continue
        rows.append([*head, format_bytes(plan.total), format_seconds(plan.seconds_per_epoch), _what_is_set(plan)])
    screen.table("What each would do", ["device", "budget", "memory", "time per epoch", "set by the plan"], rows)


def show_worlds(
    screen: Screen,
    jobs: Sequence[Job],
    plans: Sequence[Sequence[Proposal | BudgetError]],
    targets: Sequence[tuple[Device, int]],
) -> None:
    """Several numbers of GPUs: a row for each of them and each device and budget."""
    rows = []
    for job, answers in zip(jobs, plans, strict=True):
        for (device, budget), plan in zip(targets, answers, strict=True):
            head = [f"{job.processes:,}", device.name, format_bytes(budget), _examples(job)]
            if isinstance(plan, BudgetError):
                rows.append([*head, "-", "-", "-", _why_not(plan)])
                continue
            host = format_bytes(plan.forecast.host_bytes * job.processes // job.nodes)
            times = [format_bytes(plan.total), host, format_seconds(plan.seconds_per_epoch)]
            rows.append([*head, *times, _what_is_set(plan)])
    columns = ["GPUs", "device", "budget", "examples each", "memory each", "host", "time per epoch", "set by the plan"]
    screen.table("On so many GPUs", columns, rows)


def _what_is_set(plan: Proposal) -> str:
    return ", ".join(describe(strategy) for strategy in plan.chosen().values()) or "the recipe as it stands"


def _why_not(error: BudgetError) -> str:
    return "does not fit; " + error.problems[-1]


def _examples(job: Job) -> str:
    """Of an update, on each process: the same for all where the number divides the batch size."""
    least, rest = divmod(job.recipe.training.batch_size, job.processes)
    return f"{least} or {least + 1}" if rest else str(least)


def _show_rows(screen: Screen, plan: Proposal) -> None:
    """The fullest moment as bars of the budget's own length."""
    peak = plan.forecast.peak
    rows = dict(peak.rows)
    if plan.forecast.reserved is not None:
        rows["between blocks"] = plan.forecast.reserved - peak.size
    if plan.context:
        rows["context (assumed)"] = plan.context
    rows["margin"] = plan.margin
    rows["free"] = plan.budget - plan.total - plan.margin
    for name, size in rows.items():
        mark = "░" if name in ("margin", "free") else "█"
        bar = mark * round(BAR * max(0, size) / plan.budget)
        screen.say(f"  {name:18}{format_bytes(size):>11}  {bar}")
    phase = f"fullest in {plan.forecast.peak_phase}"
    host = f"; {format_bytes(plan.forecast.host_bytes)} in the host's memory" if plan.forecast.host_bytes else ""
    screen.say(f"  {'in all':18}{format_bytes(plan.total):>11}  of {format_bytes(plan.budget)}; {phase}{host}\n")
