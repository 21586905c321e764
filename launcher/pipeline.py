"""The straight line: check -> plan -> build -> train -> report; each result is the next one's argument."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from accelerate.utils import broadcast_object_list, set_seed

from launcher.build import Parts, Session, build_session, change_model, check_schedule, warmup_updates
from launcher.data import Examples, RawData, read_data, tokenise
from launcher.errors import DataError
from launcher.fit import fit
from launcher.job import Job
from launcher.meter import MemoryMeter
from launcher.model import apply_labels, length_limit, load_config, load_model, load_tokenizer
from launcher.plan import Plan, make_plan
from launcher.processes import start_accelerator
from launcher.records import new_run_folder, versions, write_json
from launcher.run_state import Phases, Run
from launcher.screen import Screen
from launcher.summary import report
from launcher.units import count, format_seconds

if TYPE_CHECKING:
    from accelerate import Accelerator
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

    from launcher.recipe import Recipe

log = logging.getLogger(__name__)


def run(job: Job) -> Path:
    """From a checked recipe to a trained model; returns the run folder. Every process calls it."""
    plan = make_plan(job)
    accelerator = start_accelerator(plan.settings.precision)
    screen = Screen(main=accelerator.is_main_process)
    screen.show_logs()
    _quiet_libraries()
    for reason in plan.reasons:
        log.info("%s", reason)
    phase = Phases(MemoryMeter(accelerator.device))
    with phase("load"):
        check_schedule(plan.recipe.training)
        session = build_session(plan, accelerator, load_parts(plan))
    _introduce(session)
    # Not before: data with mistakes in it leaves no folder behind.
    state = Run(_start_folder(plan, accelerator), screen, phase)
    with phase("train"):
        fit(session, state)
    report(session, state)
    # Without the barrier a process may abort after a correct run while others still talk to it.
    accelerator.wait_for_everyone()
    accelerator.end_training()
    return state.folder


def _introduce(session: Session) -> None:
    """One line on what is about to be trained, where."""
    sizes = [parameter.numel() for parameter in session.model.parameters()]
    trained = sum(parameter.numel() for parameter in session.model.parameters() if parameter.requires_grad)
    processes = session.accelerator.num_processes
    cpus = count(processes, "CPU process", "CPU processes")
    log.info(
        "%s of %s on %s: %.1f M of %.1f M parameters are trained",
        count(session.total_updates, "update"),
        count(session.plan.recipe.training.batch_size, "example"),
        cpus if session.accelerator.device.type == "cpu" else count(processes, "GPU"),
        trained / 1e6,
        sum(sizes) / 1e6,
    )
    training, total = session.plan.recipe.training, session.total_updates
    if session.schedule is not None and warmup_updates(training, total) >= total:
        warmup = warmup_updates(training, total)
        log.warning(
            "training.warmup: %d of %d updates, the rate never gets to %g", warmup, total, training.learning_rate
        )


def load_parts(plan: Plan, make_model: Callable[[Recipe, PretrainedConfig], PreTrainedModel] = load_model) -> Parts:
    """Data, tokenizer and model, the model changed by the strategies; says what happened to the data."""
    recipe = plan.recipe
    raw = read_data(recipe)
    held = 0 if raw.validation is None else len(raw.validation.values)
    log.info("data: %s to train on, %s to validate", count(len(raw.train.values), "example"), f"{held:,}")
    for note in raw.notes:
        log.warning("data: %s", note)
    config = load_config(recipe)
    tokenizer = load_tokenizer(recipe, config)
    labels = apply_labels(config, recipe.task, raw.labels)
    if labels:
        log.info("%s: %s", count(len(labels), "label"), ", ".join(labels[:20]) + (" ..." if labels[20:] else ""))
    limit = length_limit(config, tokenizer)
    train, validation = _tokenise(plan, raw, labels, tokenizer, limit)
    set_seed(recipe.training.seed)  # new weights are the same on every process and in every run
    model = make_model(recipe, config)
    for note in change_model(plan, model):
        log.info("%s", note)
    return Parts(model, tokenizer, labels, train, validation, limit)


def _tokenise(
    plan: Plan, raw: RawData, labels: tuple[str, ...], tokenizer: PreTrainedTokenizerBase, limit: int | None
) -> tuple[Examples, Examples | None]:
    start = time.perf_counter()
    wanted = plan.settings.max_length
    bounds = [bound for bound in (wanted, limit) if bound is not None]
    cut = min(bounds) if bounds else None
    task = plan.recipe.task
    train = _with_tokens(tokenise(raw.train, task, labels, tokenizer, cut), raw.train.source)
    held = None
    if raw.validation is not None:
        held = _with_tokens(tokenise(raw.validation, task, labels, tokenizer, cut), raw.validation.source)
    seconds = time.perf_counter() - start
    if plan.settings.fast_tokenizer and not tokenizer.is_fast:
        speed = (len(train) + (len(held) if held else 0)) / seconds
        log.warning("fast_tokenizer: this model has only a slow one: %s, %.0f texts/s", format_seconds(seconds), speed)
    most = math.ceil(plan.recipe.training.batch_size / plan.processes)
    for strategy in plan.strategies:
        for note in strategy.notes_on_lengths(train.lengths, most):
            log.info("%s: %s", strategy.key, note)
    longer = int((train.lengths.full > train.lengths.used).sum())
    if longer and limit is not None and (wanted is None or wanted > limit):
        log.warning("%s cut to the %d tokens that the model can read", count(longer, "text"), limit)
    return train, held


def _with_tokens(examples: Examples, source: str) -> Examples:
    """Without the texts of which the tokenizer leaves nothing, not even special tokens: no model reads those."""
    keep = np.flatnonzero(examples.lengths.used)
    lost = len(examples) - len(keep)
    if not len(keep):
        raise DataError(source, ["the tokenizer leaves nothing of any text; is it that of another language?"])
    if not lost:
        return examples
    log.warning("data: %s of %s dropped: no tokens", count(lost, "text"), f"{len(examples):,}")
    return examples.take(keep)


def _start_folder(plan: Plan, accelerator: Accelerator) -> Path:
    """Made by the main process, known to all, with what is decided so far in it."""
    place: list[Path | None] = [None]
    if accelerator.is_main_process:
        folder = new_run_folder(Path(plan.recipe.output.folder), plan.recipe.name)
        write_json(folder / "recipe.json", plan.recipe.model_dump(mode="json"))
        write_json(folder / "plan.json", plan.as_json())
        write_json(folder / "versions.json", versions())
        place = [folder]
    if accelerator.num_processes > 1:
        broadcast_object_list(place)
    assert place[0] is not None
    return place[0]


def _quiet_libraries() -> None:
    """Their bars and load reports; what matters of it the launcher says itself."""
    import transformers

    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
