"""From a budget to a proposal, or to the error that says what would fit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations as subsets

from launcher.batches import UpdateSampler
from launcher.cutter import Limits
from launcher.errors import BudgetError
from launcher.forecast.assumed import CONTEXT_BYTES, MARGINS
from launcher.forecast.result import ACTIVATIONS
from launcher.planner.combinations import Combination, describe, is_shortening, may_choose
from launcher.planner.ground import Ground
from launcher.planner.proposal import Proposal, Step
from launcher.planner.search import Found, Option, demand, fullest, search, weigh
from launcher.strategies import ALL, Strategy
from launcher.units import format_bytes, format_seconds

MOST_PERMISSIONS = 2


def propose(ground: Ground, budget: int) -> Proposal:
    """BudgetError where nothing that is allowed fits into `budget` bytes of the device."""
    memory, device, reserve = ground.job.recipe.memory, ground.device, reserve_on(ground)
    room = budget - reserve.margin(budget) - reserve.context
    found = search(ground, memory.allow, room)
    if not isinstance(found, Found):
        raise BudgetError(f"memory.budget {format_bytes(budget)}", list(_reasons(ground, found, room, reserve)))
    option, forecast = found.option, found.forecast
    training = ground.job.recipe.training
    return Proposal(
        device=device,
        budget=budget,
        margin=reserve.margin(budget),
        context=reserve.context,
        total=demand(forecast) + reserve.context,
        strategies={s.key: s.model_dump(mode="json", exclude_none=True) for s in option.strategies},
        cost=option.surface.cost,
        forecast=forecast,
        calibration=ground.calibration,
        seconds_per_epoch=option.seconds,
        updates_per_epoch=UpdateSampler(len(ground.loaded.train), training.batch_size, 0).updates_per_epoch,
        micro_batches_per_update=option.micro_batches,
        ladder=tuple(_ladder(ground, option, demand(forecast), reserve.context)),
        rejected=(*_rejected(found, reserve), *found.left_out),
    )


@dataclass(frozen=True)
class Reserve:
    """What of a budget is not for tensors: `context` bytes, and a share kept free."""

    context: int
    share: float

    def margin(self, budget: int) -> int:
        return round(budget * self.share)

    def budget(self, size: float) -> int:
        """The least, in bytes, that leaves room for so many bytes of tensors."""
        return math.ceil((size + self.context) / (1 - self.share))


def reserve_on(ground: Ground) -> Reserve:
    """What runs on this device have taken above their forecasts is kept free besides."""
    kind = ground.device.kind
    return Reserve(0 if kind == "cpu" else CONTEXT_BYTES, MARGINS[kind] + max(0.0, ground.calibration.memory - 1))


def _ladder(ground: Ground, option: Option, size: int, context: int) -> Iterator[Step]:
    """From the recipe as it stands, one choice at a time; the last step's size is that of its own trace."""
    limits = option.plan.limits if option.limits is None else Limits()
    names = ["the recipe as it stands"]
    shapes: list[tuple[tuple[Strategy, ...], Limits]] = [((), limits)]
    # Shorter texts before smaller micro-batches, which may not hold the longer ones.
    in_order = sorted(option.combination.strategies, key=lambda strategy: not is_shortening(strategy))
    shortening = sum(map(is_shortening, in_order))
    for number in range(len(in_order) + 1):
        if number:
            names.append(f"+ {describe(in_order[number - 1])}")
            shapes.append((tuple(in_order[:number]), limits))
        if number == shortening and option.limits is not None and option.limits.tokens is not None:
            limits = option.limits
            names.append(f"+ micro-batches of {limits.tokens:,} tokens")
            shapes.append((tuple(in_order[:number]), limits))
    for place, (name, (strategies, some)) in enumerate(zip(names, shapes, strict=True)):
        surface = ground.surface(strategies)
        plan = ground.plan(strategies, surface.cost)
        peak = size if place == len(names) - 1 else round(fullest(ground, plan, some, surface))
        yield Step(name, peak + context, ground.epoch(plan, some, surface)[0])


def _rejected(found: Found, reserve: Reserve) -> Iterator[str]:
    """A line each, those that fit first, by time."""
    for option in sorted(found.others, key=lambda other: (not other.fits, other.seconds, other.peak)):
        if option.fits:
            yield f"{option.name}: fits, {format_seconds(option.seconds)} per epoch"
        else:
            size = format_bytes(reserve.budget(option.peak))
            yield f"{option.name}: needs a budget of {size}{_alone(option, ' for the longest text alone')}"


def _alone(option: Option, words: str) -> str:
    """These where its size is that of one text at a time."""
    return words if option.limits is not None and option.limits.examples == 1 else ""


def _reasons(ground: Ground, options: list[Option], room: int, reserve: Reserve) -> Iterator[str]:
    """What the smallest takes, of what, and which permission would help."""
    least = min(options, key=lambda option: option.peak)
    budget = reserve.budget(least.peak)
    name = f"the least is {format_bytes(budget)} with {least.name}{_alone(least, ', one text at a time')}"
    yield f"nothing that is allowed fits on {ground.device.name}: {name}"
    rows = dict(ground.held(least.combination.strategies))
    rows[ACTIVATIONS] = round(least.peak) - sum(rows.values())
    sizes = ", ".join(f"{row} {format_bytes(size)}" for row, size in sorted(rows.items(), key=lambda row: -row[1]))
    yield f"of that {sizes}; context and margin {format_bytes(budget - round(least.peak))}"
    yield _advice(ground, least, room, reserve)


def _advice(ground: Ground, least: Option, room: int, reserve: Reserve) -> str:
    """The fewest permissions under which something fits, of those the fastest."""
    allowed = ground.job.recipe.memory.allow
    asked = [cls for cls in ALL if cls.key not in allowed and may_choose(cls, ground.job, [cls.key])]
    asked = [cls for cls in asked if cls.cost == "changes_training"]
    for number in range(1, MOST_PERMISSIONS + 1):
        fitting = [
            option
            for classes in subsets(asked, number)
            if (option := _with_permissions(ground, least, classes, room)) is not None
        ]
        if fitting:
            best = min(fitting, key=lambda option: option.seconds)
            keys = [s.key for s in best.combination.strategies if s.cost == "changes_training" and s.key not in allowed]
            size = format_bytes(reserve.budget(best.peak))
            words = f"memory.allow: [{', '.join([*allowed, *keys])}] would make it fit, in {size}"
            return f"{words}; it changes what is learned"
    return "no permission of memory.allow would make it fit; take a smaller model or a larger budget"


def _with_permissions(ground: Ground, least: Option, classes: tuple[type[Strategy], ...], room: int) -> Option | None:
    """The smallest plan so far with these besides, in their gentlest form that does."""
    forms = [[form for form in cls.candidates(ground.job) if not form.problems(ground.job)] for cls in classes]
    if not all(forms):
        return None
    for step in range(max(map(len, forms))):
        added = [some[min(step, len(some) - 1)] for some in forms]
        barred = {key for form in added for key in form.conflicts}
        kept = [s for s in least.combination.strategies if s.key not in barred]
        if barred & {form.key for form in added}:
            return None
        option = weigh(ground, Combination((*kept, *added)), room, [])
        if option is not None and option.fits:
            return option
    return None
