"""Which strategies the planner may set, and in which combinations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from launcher.job import Job
from launcher.settings import Settings
from launcher.strategies import ALL, Strategy


@dataclass(frozen=True)
class Combination:
    """What the planner adds to the recipe's own strategies; the micro-batch limit comes on top."""

    strategies: tuple[Strategy, ...] = ()

    @property
    def changes(self) -> int:
        """How many of them change what is learned."""
        return sum(strategy.cost == "changes_training" for strategy in self.strategies)

    @property
    def name(self) -> str:
        return " + ".join(describe(strategy) for strategy in self.strategies) or "nothing besides"


def describe(strategy: Strategy) -> str:
    """`freezing (embeddings true, first_layers 6)`: the key, and what differs from its defaults."""
    said = strategy.model_dump(mode="json", exclude_defaults=True)
    values = ", ".join(f"{name} {str(value).lower()}" for name, value in said.items())
    return f"{strategy.key} ({values})" if values else strategy.key


def combinations(job: Job, allowed: Sequence[str]) -> tuple[list[Combination], list[str]]:
    """All without a last resort, and why some forms are left out for this model or device."""
    left_out: list[str] = []
    options: list[list[Strategy | None]] = []
    for cls in ALL:
        if may_choose(cls, job, allowed) and not cls.is_last_resort:
            options.append([None, *_possible(cls, job, left_out)])
    found = [Combination(tuple(s for s in some if s is not None)) for some in product(*options)]
    return [one for one in found if not _has_conflict(one, job)], left_out


def last_resorts(job: Job, allowed: Sequence[str]) -> Iterator[list[tuple[Strategy, ...]]]:
    """Level by level: no last resort, then the gentlest of each, then one step further in one of them ..."""
    options: list[list[Strategy | None]] = []
    for cls in ALL:
        if may_choose(cls, job, allowed) and cls.is_last_resort:
            options.append([None, *_possible(cls, job, [])])
    levels: dict[int, list[tuple[Strategy, ...]]] = {}
    for steps in product(*(range(len(forms)) for forms in options)):
        chosen = tuple(forms[step] for forms, step in zip(options, steps, strict=True))
        levels.setdefault(sum(steps), []).append(tuple(s for s in chosen if s is not None))
    for level in sorted(levels):
        yield levels[level]


def may_choose(cls: type[Strategy], job: Job, allowed: Sequence[str]) -> bool:
    """Open in the recipe, and slower at most unless it is allowed. Free ones are on already."""
    is_open = job.recipe.strategies.is_open(cls.key)
    return is_open and cls.cost != "free" and (cls.cost == "slower" or cls.key in allowed)


def is_shortening(strategy: Strategy) -> bool:
    """Whether texts are shorter by it."""
    settings = Settings()
    strategy.configure(settings)
    return settings.max_length is not None


def _possible(cls: type[Strategy], job: Job, left_out: list[str]) -> list[Strategy]:
    possible = []
    for form in cls.candidates(job):
        problems = form.problems(job)
        if problems:
            left_out.append(f"{describe(form)}: {problems[0].text}")
        else:
            possible.append(form)
    return possible


def _has_conflict(one: Combination, job: Job) -> bool:
    keys = {s.key for s in one.strategies} | {s.key for s in job.recipe.strategies.chosen()}
    return any(keys & set(s.conflicts) for s in one.strategies)
