"""All updates of a run, with the evaluations between them."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import asdict

import numpy as np

from launcher.batches import Update, padding_share
from launcher.build import Session
from launcher.evaluate import evaluate
from launcher.export import save_model, try_save
from launcher.run_state import Run
from launcher.train import UpdateResult, rehearse, train_update
from launcher.units import format_bytes, format_seconds

log = logging.getLogger(__name__)


def fit(session: Session, run: Run) -> None:
    """Ends with the weights to keep in RUN/model; SaveError in the first minute where they could not be kept."""
    session.set_train_mode()
    total = session.total_updates
    with run.screen.bar("training", total) as bar:
        for number, indices in enumerate(session.sampler.updates(0, total), start=1):
            start = time.perf_counter()
            update = session.cutter.cut(indices)
            result = train_update(session, update)
            facts = _record(session, run, number, indices, update, result, start)
            bar.advance(facts)
            if number == 1:
                rehearse(session)
                _try_save(session, run)
            if session.validation is not None and _is_due(session, number):
                _evaluate(session, run, number)
    if session.plan.recipe.training.keep_best is None:
        _save(session, run, total)


def _try_save(session: Session, run: Run) -> None:
    """While little is lost yet."""
    with run.phase("save"):
        cost = try_save(session, run.folder)
    run.record(kind="save_trial", **asdict(cost))
    log.info("a save was tried: %s of weights in %s", format_bytes(cost.bytes), format_seconds(cost.seconds))


def _save(session: Session, run: Run, number: int) -> None:
    """The model after this update is the one to keep."""
    with run.phase("save"):
        cost = save_model(session, run.folder / "model", run.evaluation, number)
    run.kept_update = number
    run.record(kind="save", update=number, **asdict(cost))


def _is_due(session: Session, number: int) -> bool:
    every = session.plan.recipe.training.evaluate_every or session.sampler.updates_per_epoch
    return number % every == 0 or number == session.total_updates


def _record(
    session: Session, run: Run, number: int, indices: np.ndarray, update: Update, result: UpdateResult, start: float
) -> str:
    """Returns the facts for the bar. Padding is that of this process; all else counts every process."""
    loss, norm = float(result.loss), float(result.gradient_norm)
    seconds = time.perf_counter() - start  # only now the device is through with the update
    if not math.isfinite(loss) and not result.skipped:
        log.warning("update %d: the loss is %s", number, loss)
    real = [micro_batch.examples for micro_batch in update.micro_batches if micro_batch.weight]
    used = sum(int(session.examples.lengths.used[examples].sum()) for examples in real)
    padded = sum(len(examples) * session.cutter.padded_length(examples) for examples in real)
    if number > 1:
        run.warm_updates, run.warm_seconds = run.warm_updates + 1, run.warm_seconds + seconds
    run.add(updates=1, examples=update.examples, used_tokens=used, padded_tokens=padded, seconds=seconds)
    run.record(
        kind="update",
        update=number,
        epoch=round(number / session.sampler.updates_per_epoch, 4),
        loss=loss,
        learning_rate=result.learning_rate,
        gradient_norm=norm,
        skipped=result.skipped,
        micro_batches=len(update.micro_batches),
        seconds=seconds,
        examples_per_second=update.examples / seconds,
        tokens_per_second=int(session.examples.lengths.used[indices].sum()) / seconds,
        padding_share=padding_share(used, padded),
        peak_memory=run.phase.meter.now(),
    )
    return f"loss {loss:.4f}  {update.examples / seconds:.1f} examples/s"


def _evaluate(session: Session, run: Run, number: int) -> None:
    """Measures; where the recipe keeps the best weights and these are, saves them."""
    with run.phase("evaluate"):
        evaluation = evaluate(session)
    run.record(kind="evaluation", update=number, **evaluation.metrics)
    log.info("update %d: %s", number, ", ".join(f"{name} {value:.4f}" for name, value in evaluation.metrics.items()))
    metric = session.plan.recipe.training.keep_best
    if metric is None:
        run.evaluation = evaluation
        return
    if run.evaluation is None or _is_better(session, evaluation.metrics[metric], run.evaluation.metrics[metric]):
        run.evaluation = evaluation
        _save(session, run, number)


def _is_better(session: Session, new: float, best: float) -> bool:
    """By the metric that the recipe keeps the best of; anything is better than what is not a number."""
    direction = session.plan.recipe.task.metric_names()[session.plan.recipe.training.keep_best or ""]
    return (new > best if direction == "max" else new < best) or (math.isnan(best) and not math.isnan(new))
