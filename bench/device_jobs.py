"""What bench/device_check.py runs in processes of their own: `device_jobs.py JOB FOLDER [ARGUMENT]...`.

A row is a line of JSON on standard output. FOLDER is what device_cases.make_world has made, with device.json in it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
import transformers  # noqa: E402
from device_card import CARD_JOBS  # noqa: E402
from device_cases import file_name, job_of  # noqa: E402
from device_speed import HAS_CARD, say, speed, synchronize  # noqa: E402

from launcher.build import Session, build_session  # noqa: E402
from launcher.devices import Device, this_card  # noqa: E402
from launcher.errors import LauncherError  # noqa: E402
from launcher.evaluate import logits_of  # noqa: E402
from launcher.forecast.fake_run import fake_run  # noqa: E402
from launcher.forecast.trace import trace_plan  # noqa: E402
from launcher.load import load_data, load_parts  # noqa: E402
from launcher.plan import make_plan  # noqa: E402
from launcher.processes import start_form  # noqa: E402
from launcher.simulated_card import SimulatedCard  # noqa: E402
from launcher.train import accumulate, step, train_update, worst_update  # noqa: E402

TIMED_SECONDS = 2.5  # of repeated updates


def card() -> None:
    """What is here, as the product sees it."""
    facts = torch.cuda.get_device_properties(0)
    say(
        device=asdict(this_card(facts.name, facts.total_memory, (facts.major, facts.minor))),
        torch=torch.__version__,
        cuda=torch.version.cuda,
        cudnn=torch.backends.cudnn.version(),
        transformers=transformers.__version__,
    )


def forecast(folder: Path, *names: str) -> None:
    """Memory by the product's own trace; seconds of the largest update by its roofline."""
    device = device_of(folder)
    for name in names:
        start = time.perf_counter()
        try:
            plan = make_plan(job_of(folder, file_name(name), target=device))
            loaded = load_data(plan)
            found = trace_plan(plan, loaded, device)
            predicted = None
            with fake_run(plan, loaded, device, with_work=True) as run:
                worst = worst_update(run.session)
                run.update(worst)  # states exist from here on
                run.recorder.take()
                accumulate(run.session, worst)
                work = run.recorder.take()
                step(run.session)
                predicted = (work + run.recorder.take()).seconds(device)
        except LauncherError as error:
            say(name=name, skipped=error.problems[0])
            continue
        phases = {phase: peak.size for phase, peak in found.phases.items()}
        say(
            name=name,
            tensors=found.peak.size,
            allocated=found.allocated,
            reserved=found.reserved,
            host=found.host_bytes,
            phases=phases,
            seconds=predicted,
            took=time.perf_counter() - start,
        )


def measure(folder: Path, name: str) -> None:
    """Peaks of two largest updates and of an evaluation, from this process's first allocation on; then the clock."""
    try:
        plan = make_plan(job_of(folder, file_name(name)))
    except LauncherError as error:
        say(name=name, skipped=error.problems[0])
        return
    parts = load_parts(plan)
    wait_for_turn()
    simulated = None if HAS_CARD else SimulatedCard(2**60)
    session = build_session(plan, start_form(plan), parts)
    if simulated is not None:
        simulated.hold([*session.model.parameters(), *session.model.buffers()])
    with counted(simulated):
        session.set_train_mode()
        worst = worst_update(session)
        for _ in range(2):
            train_update(session, worst)
        trained = peaks(simulated)
        reset(simulated)
        if session.validation is not None:
            examples, cutter = session.validation
            session.model.eval()
            logits_of(session, examples, cutter, cutter.worst(len(examples)).examples)
            session.set_train_mode()
        evaluated = peaks(simulated)
    row = {"name": name, "train": trained, "evaluate": evaluated}
    row |= {"seconds": timed(session, worst), "shape": [len(worst.micro_batches), worst.examples]}
    say(**row, workspaces=workspaces() if HAS_CARD else None)


@contextmanager
def counted(simulated: SimulatedCard | None) -> Iterator[None]:
    if simulated is None:
        yield
        return
    with simulated:
        yield


def peaks(simulated: SimulatedCard | None) -> dict[str, int]:
    if simulated is not None:
        return {"tensors": simulated.peak}
    torch.cuda.synchronize()
    return {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}


def reset(simulated: SimulatedCard | None) -> None:
    if simulated is not None:
        simulated.reset_peak()
    else:
        torch.cuda.reset_peak_memory_stats()


def timed(session: Session, update: Any) -> float:
    """Seconds of one, the least of those that fit into the time."""
    found: list[float] = []
    while not found or sum(found) < TIMED_SECONDS * (1 if HAS_CARD else 0.1):
        start = time.perf_counter()
        float(train_update(session, update).loss)
        synchronize()
        found.append(time.perf_counter() - start)
    return min(found)


def workspaces() -> int:
    """Bytes that cuBLAS holds in torch's allocator: of each thread's handle, for as long as the process lives."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch._C._cuda_clearCublasWorkspaces()
    return before - torch.cuda.memory_allocated()


def wait_for_turn() -> None:
    """Whoever started this process ahead of its time writes a line when the card is free."""
    if os.environ.get("DEVICE_CHECK_WAITS"):
        sys.stdin.readline()


def device_of(folder: Path) -> Device:
    return Device.from_json(json.loads((folder / "device.json").read_text()))


def main(name: str, folder: str, *arguments: str) -> None:
    logging.disable(logging.WARNING)
    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    jobs: dict[str, Callable[..., None]] = {"forecast": forecast, "measure": measure, "speed": speed} | CARD_JOBS
    if name == "card":
        card()
    else:
        jobs[name](Path(folder), *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
