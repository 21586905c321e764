"""The straight line: check -> plan -> build -> train -> report; each result is the next one's argument."""

from __future__ import annotations

import logging
import time
from contextlib import nullcontext
from pathlib import Path

import torch
from accelerate.utils import broadcast_object_list

from launcher.budget import cap, plan_for_budget
from launcher.build import Session, build_session, check_schedule, warmup_updates
from launcher.disk import writing
from launcher.errors import MemoryExceededError
from launcher.fit import fit
from launcher.forms import Form
from launcher.job import Job
from launcher.load import Loaded, check_agreement, fetch_model, load_data, make_parts
from launcher.machine import started_rank
from launcher.meter import MemoryMeter
from launcher.model import load_model
from launcher.out_of_memory import memory_exceeded
from launcher.plan import Plan, make_plan
from launcher.planner.proposal import Proposal
from launcher.processes import check_start, start_form
from launcher.records import new_run_folder, versions, write_json
from launcher.run_state import Phases, Run
from launcher.screen import Screen
from launcher.shards import elements
from launcher.simulated_card import SimulatedCard
from launcher.summary import report
from launcher.together import together
from launcher.units import count

log = logging.getLogger(__name__)


def run(job: Job) -> Path:
    """From a checked recipe to a trained model; returns the run folder. Every process calls it."""
    proposal = plan_for_budget(job)
    plan = make_plan(job, proposal.chosen(), proposal.cost) if proposal is not None else make_plan(job)
    check_start(plan)
    check_schedule(plan.recipe.training)
    screen = Screen(main=started_rank() == 0)
    screen.show_logs()
    _quiet_libraries()
    for reason in plan.reasons:
        log.info("%s", reason)
    start = time.perf_counter()
    # Before the processes meet: those that wait then for the one that reads would give up after some minutes.
    loaded = load_data(plan)
    if job.model is None:
        fetch_model(plan)
    reading = time.perf_counter() - start
    form = start_form(plan)
    accelerator = form.accelerator
    check_agreement(loaded)
    card = cap(proposal, accelerator.device) if proposal is not None else None
    phase = Phases(MemoryMeter(accelerator.device, card), {"load": reading})
    with phase("load"):
        session = _build(plan, form, loaded, card)
    _introduce(session)
    # Not before: data with mistakes in it leaves no folder behind.
    state = Run(_start_folder(plan, form, proposal), screen, phase, proposal)
    try:
        with card or nullcontext(), phase("train"):
            fit(session, state)
    except torch.OutOfMemoryError as error:
        raise memory_exceeded(session, error) from None
    report(session, state)
    # Without the barrier a process may abort after a correct run while others still talk to it.
    accelerator.wait_for_everyone()
    accelerator.end_training()
    return state.folder


def _build(plan: Plan, form: Form, loaded: Loaded, card: SimulatedCard | None) -> Session:
    """MemoryExceededError where not even the model fits."""
    try:
        session = build_session(plan, form, make_parts(plan, loaded, load_model))
        if card is not None:
            card.hold([*session.model.parameters(), *session.model.buffers()])
    except torch.OutOfMemoryError as error:
        problem = f"the model alone does not fit: {str(error).splitlines()[0]}"
        raise MemoryExceededError("memory", [problem]) from None
    return session


def _introduce(session: Session) -> None:
    """One line on what is about to be trained, where."""
    sizes = [elements(parameter) for parameter in session.model.parameters()]
    trained = sum(elements(parameter) for parameter in session.model.parameters() if parameter.requires_grad)
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


def _start_folder(plan: Plan, form: Form, proposal: Proposal | None) -> Path:
    """Made by the main process, known to all, with what is decided so far in it."""
    place: list[Path | None] = [None]
    accelerator = form.accelerator
    with together(accelerator):
        if accelerator.is_main_process:
            folder = new_run_folder(Path(plan.recipe.output.folder), plan.recipe.name)
            with writing(folder, 0):
                write_json(folder / "recipe.json", plan.recipe.model_dump(mode="json"))
                write_json(folder / "plan.json", plan.as_json() | {"budget": proposal.as_json() if proposal else None})
                write_json(folder / "versions.json", versions())
                for name, content in form.records().items():
                    write_json(folder / name, content)
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
