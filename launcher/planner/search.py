"""The fastest plan that fits: every combination weighed by its surface, the winner traced itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from launcher.cutter import CostModel, Limits
from launcher.errors import LauncherError
from launcher.forecast.result import Forecast
from launcher.forecast.trace import trace_plan
from launcher.plan import Plan
from launcher.planner.combinations import Combination, combinations, last_resorts
from launcher.planner.ground import Ground
from launcher.planner.surface import Surface
from launcher.strategies import Strategy
from launcher.strategies.gradient_accumulation import GradientAccumulation

# A roofline ranks no finer than this: of plans this close in time the simplest is taken.
TIE = 0.05
MOST_TRACES = 4  # of a winner whose trace does not agree with its surface


@dataclass(frozen=True)
class Option:
    """One way to train. `seconds` per epoch; `fits` the room it was given.

    `limits` are those that the planner sets; None where the recipe has its own. `peak` in bytes: of tensors by the
    surface, or what its own trace demands where that has shown that it does not fit.
    """

    combination: Combination
    limits: Limits | None
    surface: Surface
    plan: Plan
    peak: float
    seconds: float
    micro_batches: float
    fits: bool

    @property
    def name(self) -> str:
        return self.combination.name

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        """All that the planner sets, the micro-batch limit with them."""
        limits = self.limits
        if limits is None or limits.tokens is None:
            return self.combination.strategies
        limit = GradientAccumulation(tokens=limits.tokens, attention=limits.attention)
        return (limit, *self.combination.strategies)


@dataclass(frozen=True)
class Found:
    """The winner and its own trace; the rest that was weighed, and why others were not."""

    option: Option
    forecast: Forecast
    others: tuple[Option, ...]
    left_out: tuple[str, ...]


def search(ground: Ground, allowed: Sequence[str], room: int) -> Found | list[Option]:
    """`room` in bytes for tensors on a CPU, for what the allocator reserves on a card; all options if none fits."""
    weighed: list[Option] = []
    plain, left_out = combinations(ground.job, allowed)
    for level in last_resorts(ground.job, allowed):
        options = [
            option
            for resort in level
            for one in plain
            if (option := weigh(ground, Combination((*one.strategies, *resort)), room, left_out)) is not None
        ]
        weighed += options
        fitting = [option for option in options if option.fits]
        while fitting:
            best = _best(fitting)
            traced, forecast = _traced(ground, best, room)
            if forecast is not None:
                others = tuple(option for option in weighed if option.combination != best.combination)
                return Found(traced, forecast, others, tuple(left_out))
            fitting.remove(best)
            weighed[weighed.index(best)] = traced
    return weighed


def weigh(ground: Ground, one: Combination, room: float, left_out: list[str]) -> Option | None:
    """With the largest micro-batches that fit; None where this model does not do it.

    Where not even the recipe by itself can be followed, that error is the answer.
    """
    try:
        surface = ground.surface(one.strategies)
    except LauncherError as error:
        if not one.strategies:
            raise
        left_out.append(f"{one.name}: {error.problems[0]}")
        return None
    return weigh_surface(ground, one, surface, room)


def weigh_surface(ground: Ground, one: Combination, surface: Surface, room: float) -> Option:
    plan = ground.plan(one.strategies, surface.cost)
    is_open = ground.job.recipe.strategies.is_open("gradient_accumulation")
    if is_open:
        padded = ground.padding(plan).padded(ground.lengths(plan))
        limits = surface.limits(room, padded)
        if limits is None:
            longest = int(padded.max())
            alone = Limits(examples=1)
            return Option(one, alone, surface, plan, surface.peak(1, longest), math.inf, math.nan, False)
        limits = _unless_needless(ground, plan, limits)
    else:
        limits = plan.limits
    option = _with_limits(ground, Option(one, limits, surface, plan, 0.0, 0.0, 0.0, True), limits)
    return replace(option, limits=limits if is_open else None, fits=option.peak <= room)


def _with_limits(ground: Ground, option: Option, limits: Limits) -> Option:
    """The same in other micro-batches."""
    seconds, micro_batches = ground.epoch(option.plan, limits, option.surface)
    peak = fullest(ground, option.plan, limits, option.surface)
    return replace(option, limits=limits, peak=peak, seconds=seconds, micro_batches=micro_batches)


def fullest(ground: Ground, plan: Plan, limits: Limits, surface: Surface) -> float:
    """Bytes with the micro-batch that takes most of all that the data can bring."""
    return max(surface.peak(*size) for size in largest_sizes(ground, plan, limits))


def largest_sizes(ground: Ground, plan: Plan, limits: Limits) -> list[tuple[int, int]]:
    """Examples and padded length of the micro-batches that may take most; the last has most tokens."""
    cutter = ground.cutter(plan, limits, CostModel(0.0, 0.0))
    largest = cutter.largest(plan.recipe.training.batch_size)
    return [(len(one.examples), cutter.padded_length(one.examples)) for one in largest]


def _unless_needless(ground: Ground, plan: Plan, limits: Limits) -> Limits:
    """No limit where a whole update of the longest texts stays below it."""
    assert limits.tokens is not None
    examples, length = largest_sizes(ground, plan, Limits(attention=limits.attention))[-1]
    return Limits() if examples * limits.size(length) <= limits.tokens else limits


def _best(options: list[Option]) -> Option:
    """The fastest; of those as good as equal the one that changes least, then the simplest."""
    fastest = min(option.seconds for option in options)
    close = [option for option in options if option.seconds <= fastest * (1 + TIE)]
    return min(close, key=lambda o: (o.combination.changes, len(o.strategies), o.seconds))


def _traced(ground: Ground, option: Option, room: int) -> tuple[Option, Forecast | None]:
    """With its own trace below the room, in smaller micro-batches where the surface was too hopeful.

    No forecast where even one text at a time does not get there; the option then has what that took.
    """
    allowance = float(room)
    for _ in range(MOST_TRACES):
        plan = ground.plan(option.strategies, option.surface.cost)
        forecast = trace_plan(plan, ground.loaded_as(plan), ground.device)
        size = demand(forecast)
        if size <= room:
            return option, forecast
        refuted = replace(option, peak=size, fits=False)
        if option.limits is None:
            return refuted, None
        tokens, alone = _tokens(ground, option)
        if tokens <= alone:
            return replace(refuted, limits=Limits(examples=1)), None
        # What the surface does not know: rounding, and blocks that the allocator cannot join.
        allowance = min(option.peak, allowance) - (size - room)
        smaller = weigh_surface(ground, option.combination, option.surface, allowance)
        if not smaller.fits:  # by the surface nothing does; the trace of one text at a time may all the same
            smaller = _with_limits(ground, option, replace(option.limits, tokens=alone))
        option = smaller
    return refuted, None


def _tokens(ground: Ground, option: Option) -> tuple[int, int]:
    """Of its largest micro-batch and of the longest text alone, as its limits count."""
    assert option.limits is not None
    plan, limits = option.plan, option.limits
    examples, length = largest_sizes(ground, plan, limits)[-1]
    longest = int(ground.padding(plan).padded(ground.lengths(plan)).max())
    return math.ceil(examples * limits.size(length)), math.ceil(limits.size(longest))


def demand(forecast: Forecast) -> int:
    """Bytes: what the allocator reserves on a card, the tensors themselves on a CPU."""
    return forecast.peak.size if forecast.reserved is None else forecast.reserved
