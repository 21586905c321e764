"""The recipe with everything decided: which strategies, by whose word, and what they set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from launcher.cutter import CostModel, Limits
from launcher.job import Job
from launcher.recipe import Recipe
from launcher.settings import Settings
from launcher.strategies import ALL, Strategy


@dataclass(frozen=True)
class Plan:
    """`reasons` say why each strategy is there and what it does not do for this job.

    `cost` is what micro-batches are cut by, where the search has found it for the device.
    """

    recipe: Recipe
    strategies: tuple[Strategy, ...]
    settings: Settings
    processes: int
    reasons: tuple[str, ...]
    cost: CostModel | None = None

    @property
    def limits(self) -> Limits:
        """What one micro-batch may hold."""
        examples = self.settings.micro_batch_examples
        if self.settings.accumulation_steps is not None:
            examples = self.recipe.training.batch_size // (self.settings.accumulation_steps * self.processes)
        return Limits(examples, self.settings.micro_batch_tokens, self.settings.micro_batch_attention)

    def as_json(self) -> dict[str, Any]:
        """Plain data for the run folder."""
        return {
            "strategies": {s.key: s.model_dump(mode="json", exclude_none=True) for s in self.strategies},
            "settings": asdict(self.settings),
            "limits": asdict(self.limits),
            "cost": asdict(self.cost) if self.cost is not None else None,
            "processes": self.processes,
            "reasons": list(self.reasons),
        }


def make_plan(job: Job, planned: Mapping[str, Strategy] | None = None, cost: CostModel | None = None) -> Plan:
    """The recipe's strategies, those that the search has `planned`, and of the free ones those that are left open."""
    stated = {strategy.key: strategy for strategy in job.recipe.strategies.chosen()}
    given = stated | dict(planned or {})
    chosen: list[Strategy] = []
    reasons: list[str] = []
    for cls in ALL:
        strategy = given.get(cls.key)
        if strategy is not None and cls.key not in stated:
            reasons.append(f"{cls.key}: the plan's, to stay below the budget in the least time")
        if strategy is None and job.recipe.strategies.is_open(cls.key) and cls.cost == "free":
            strategy = _free_choice(cls, set(given), job)
            if strategy is not None:
                reasons.append(f"{cls.key}: free, so it is on; write false to go without")
        if strategy is not None:
            chosen.append(strategy)
            reasons += [f"{cls.key}: {note}" for note in strategy.notes(job)]
    settings = Settings()
    for strategy in chosen:
        strategy.configure(settings)
    return Plan(job.recipe, tuple(chosen), settings, job.processes, tuple(reasons), cost)


def _free_choice(cls: type[Strategy], stated: set[str], job: Job) -> Strategy | None:
    candidates = cls.candidates(job)
    return candidates[0] if candidates and not stated & set(cls.conflicts) else None
