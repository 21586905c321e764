"""Read a recipe and find everything that is wrong with it before anything is loaded or started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from launcher.columns import column_names, column_problems
from launcher.data_source import find_data, peek_columns
from launcher.devices import Device
from launcher.errors import RecipeError
from launcher.job import Job
from launcher.model_source import ModelFacts, read_model_facts
from launcher.read_recipe import in_line_order, place_problem, read_what_is_right
from launcher.recipe import Recipe
from launcher.sources import SourceError

Found = Iterator[tuple[str, str]]  # key, what is wrong with it


def check(
    path: Path, overrides: Sequence[str] = (), *, processes: int = 1, nodes: int = 1, target: Device | None = None
) -> Job:
    """The job that the recipe asks for, judged for `target` where that is not this machine's device.

    RecipeError lists every problem with its line.
    """
    recipe, document = read_what_is_right(path, overrides)
    found = [*_data_problems(recipe), *_task_problems(recipe)]
    facts: ModelFacts | None = None
    try:
        facts = read_model_facts(recipe.model.source, recipe.base)
    except ValueError as error:
        found.append(("model.source", str(error)))
    job = Job(recipe, facts, processes, target, path, tuple(overrides), nodes)
    if not document.problems:  # else numbers that strategies reckon with may be missing
        found += _strategy_problems(job)
    problems = document.problems + [place_problem(document, key, text) for key, text in found]
    if problems:
        raise RecipeError(str(path), in_line_order(problems))
    return job


def _data_problems(recipe: Recipe) -> Found:
    for role in recipe.data.columns:
        if role not in recipe.task.columns:
            known = ", ".join(recipe.task.columns)
            yield f"data.columns.{role}", f"unknown column; {recipe.task.type} reads {known}"
    places = [("data.train", recipe.data.train)]
    if recipe.data.validation is not None and recipe.data.validation.file is not None:
        places.append(("data.validation.file", recipe.data.validation.file))
    for key, place in places:
        yield from _source_problems(recipe, key, place)
    try:
        "".encode(recipe.data.encoding)
    except LookupError:
        yield "data.encoding", f"{recipe.data.encoding!r} is no text encoding; write such as utf-8, gb18030, latin-1"
    validation = recipe.data.validation
    if validation is not None and validation.split is not None and _find_kind(recipe) == "file":
        yield "data.validation.split", "a file has no splits; name data.validation.file or share"


def _find_kind(recipe: Recipe) -> str:
    """`hub`, `file` or `missing`."""
    try:
        return "hub" if find_data(recipe.data.train, recipe.base).format == "hub" else "file"
    except SourceError:
        return "missing"


def _source_problems(recipe: Recipe, key: str, place: str) -> Found:
    try:
        source = find_data(place, recipe.base)
    except SourceError as error:
        yield key, str(error)
        return
    present = peek_columns(source, recipe.data.encoding)
    if present is not None and any(mark in name for name in present for mark in ("\ufffd", "\0")):
        yield "data.encoding", f"{place} is not {recipe.data.encoding}; name its own, such as gb18030, latin-1, utf-16"
    elif present is not None:
        for problem in column_problems(column_names(recipe), present, place):
            column, _, text = problem.partition(": ")
            yield column, text


def _task_problems(recipe: Recipe) -> Found:
    for name in recipe.model.config:
        if name in recipe.task.config_changes(()):
            yield f"model.config.{name}", "follows from task and data; leave it out"
    if recipe.training.schedule == "constant" and recipe.training.warmup:
        yield "training.warmup", "schedule constant has none; write schedule: constant_with_warmup"
    metrics = list(recipe.task.metric_names())
    best = recipe.training.keep_best
    if best is not None and best not in metrics:
        yield "training.keep_best", f"{best!r} is not one of {', '.join(metrics)}"
    if recipe.data.validation is None:
        for key in ("keep_best", "evaluate_every"):
            if getattr(recipe.training, key) is not None:
                yield f"training.{key}", "needs data.validation"


def _strategy_problems(job: Job) -> Found:
    chosen = job.recipe.strategies.chosen()
    keys = {strategy.key for strategy in chosen}
    for strategy in chosen:
        for field, text in strategy.problems(job):
            yield f"strategies.{strategy.key}" + (f".{field}" if field else ""), text
        for other, reason in strategy.conflicts.items():
            if other in keys and other > strategy.key:
                yield f"strategies.{strategy.key}", f"excludes {other}: {reason}; keep one of the two"
