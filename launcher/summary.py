"""How a run ended: quality beside the best constant answer, memory, time, and how to use the model."""

from __future__ import annotations

import shlex
from typing import Any

from accelerate.utils import gather_object

from launcher.batches import padding_share
from launcher.beside import compare, keep
from launcher.build import Session
from launcher.out_of_memory import relaunches
from launcher.records import write_json
from launcher.run_state import Run
from launcher.screen import Screen
from launcher.tasks.base import Evaluation
from launcher.units import format_bytes, format_seconds, share

MOST_CLASSES_SHOWN = 20


def report(session: Session, run: Run) -> None:
    """Writes results.json and shows the same to the person."""
    results = collect(session, run)
    if session.accelerator.is_main_process:
        write_json(run.folder / "results.json", results)
    _show(session, run, results)


def collect(session: Session, run: Run) -> dict[str, Any]:
    """Plain data; bytes and seconds. Throughput counts updates only, not loading or evaluation."""
    totals = run.totals
    peaks = _peaks(run.phase.meter.peaks)
    results: dict[str, Any] = {
        "updates": session.total_updates,
        "kept_update": run.kept_update,
        "seconds": run.phase.seconds,
        "examples_per_second": totals["examples"] / totals["seconds"],
        "padding_share": padding_share(totals["used_tokens"], totals["padded_tokens"]),
        "peak_memory": peaks,
    }
    if run.proposal is not None:
        counted = "tensors" if run.proposal.device.kind == "cpu" else "device_total"
        budget, peak = run.proposal.budget, max(sizes[counted] for sizes in peaks.values())
        results["budget"] = {"bytes": budget, "peak": peak, "kept": peak <= budget}
        compared = compare(run.proposal, peaks)
        results["forecast"] = {phase: {"forecast": pair[0], "fact": pair[1]} for phase, pair in compared.items()}
        if run.warm_updates and session.accelerator.is_main_process:
            keep(run.proposal, compared, run.warm_seconds / run.warm_updates)
    if relaunches():
        results["relaunches"] = relaunches()
    if run.evaluation is not None:
        results["metrics"] = run.evaluation.metrics
        results["floor"] = {"answer": run.evaluation.floor_name} | run.evaluation.floor
        results["per_class"] = run.evaluation.per_class
        results["better_than_floor"] = is_better_than_floor(session, run.evaluation)
    return results


def _peaks(own: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Of the process that took most, phase by phase; every process calls it."""
    every = gather_object([own])
    return {phase: {name: max(peaks[phase][name] for peaks in every) for name in sizes} for phase, sizes in own.items()}


def is_better_than_floor(session: Session, evaluation: Evaluation) -> bool:
    """By the task's first metric after the loss: accuracy, or squared error."""
    name, direction = list(session.plan.recipe.task.metric_names().items())[1]
    value, floor = evaluation.metrics[name], evaluation.floor[name]
    return value > floor if direction == "max" else value < floor


def _show(session: Session, run: Run, results: dict[str, Any]) -> None:
    screen = run.screen
    if run.evaluation is not None:
        _show_quality(run, run.evaluation, results["better_than_floor"])
    phases = [
        [phase, format_seconds(run.phase.seconds[phase]), *(format_bytes(size) for size in sizes.values())]
        for phase, sizes in results["peak_memory"].items()
    ]
    kinds = list(next(iter(results["peak_memory"].values())))
    screen.table("Time and peak memory", ["phase", "time", *kinds], phases)
    padding = share(results["padding_share"], 1)
    screen.say(f"{results['examples_per_second']:.1f} examples/s, {padding} of the work was padding")
    for problem in results.get("relaunches", []):
        screen.say(f"started again, with smaller micro-batches, after: {problem}")
    if "budget" in results:
        _show_forecast(screen, results["forecast"])
        budget = results["budget"]
        verdict = "kept" if budget["kept"] else "EXCEEDED"
        screen.say(f"budget {format_bytes(budget['bytes'])} {verdict}: the peak was {format_bytes(budget['peak'])}")
    screen.say(f"model of update {run.kept_update}: {run.folder / 'model'}")
    usage = session.plan.recipe.task.usage(str(run.folder / "model"))
    code = f"from transformers import pipeline; print({usage})"
    screen.say(f"use it: python -c {quoted(code)}")


def _show_forecast(screen: Screen, phases: dict[str, dict[str, int]]) -> None:
    rows = [
        [phase, format_bytes(sizes["forecast"]), format_bytes(sizes["fact"]), f"{_error(sizes):+.2f} %"]
        for phase, sizes in phases.items()
    ]
    screen.table("Forecast beside fact", ["phase", "forecast", "fact", "forecast's error"], rows)


def _error(sizes: dict[str, int]) -> float:
    return 100 * (sizes["forecast"] / sizes["fact"] - 1)


def quoted(code: str) -> str:
    """In double quotes, which every shell knows, where nothing in it means something between those."""
    return shlex.quote(code) if set(code) & set('"$`\\!%') else f'"{code}"'


def _show_quality(run: Run, evaluation: Evaluation, better: bool) -> None:
    rows = [[name, f"{value:.4f}", f"{evaluation.floor[name]:.4f}"] for name, value in evaluation.metrics.items()]
    run.screen.table("Validation", ["metric", "model", evaluation.floor_name], rows)
    classes = list(evaluation.per_class.items())
    if classes:
        names = list(classes[0][1])
        rows = [
            [name, *(f"{v:.3f}" if isinstance(v, float) else f"{v:,}" for v in scores.values())]
            for name, scores in classes
        ]
        run.screen.table("Per class", ["class", *names], rows[:MOST_CLASSES_SHOWN])
    if not better:
        run.screen.say(f"NO BETTER than {evaluation.floor_name}: this model has learned nothing that counts")
