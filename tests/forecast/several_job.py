"""What each process of one launch really holds and takes, by a counter before the allocator, form by form.

several_job.py FOLDER    FOLDER holds recipes *.yaml; bytes go to FOLDER/peaks-RANK.json
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from launcher.build import build_session
from launcher.check import check
from launcher.load import load_parts
from launcher.machine import started_processes, started_rank
from launcher.plan import make_plan
from launcher.processes import start_form
from launcher.train import train_update, worst_update
from tests.conftest import forget_forms

# allocations.c, preloaded into this process.
COUNTED = ctypes.CDLL(os.environ["LD_PRELOAD"])
for counter in (COUNTED.allocations_now, COUNTED.allocations_peak):
    counter.restype = ctypes.c_longlong
LATER_UPDATES = 3


def bytes_of(path: Path) -> dict[str, int]:
    """Of one recipe: what is held after worst updates, the lowest peak of the later ones, what the kernel counts.

    The lowest: gloo's threads give their buffers back when they come to it, now and then after the next one is taken.
    """
    forget_forms()
    gc.collect()
    os.environ["ACCELERATE_USE_CPU"] = "true"
    before, resident = COUNTED.allocations_now(), memory_of("VmRSS")
    plan = make_plan(check(path, processes=started_processes()))
    form = start_form(plan)
    parts = load_parts(plan)
    for parameter in parts.model.parameters():  # read from a file they lie in its mapping, which nobody allocated
        if parameter.device.type == "cpu":
            parameter.data = parameter.data.clone()
    session = build_session(plan, form, parts)
    session.set_train_mode()
    train_update(session, worst_update(session))
    del parts
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the kernel's peak starts anew
    peaks = []
    for _ in range(LATER_UPDATES):
        COUNTED.allocations_reset()
        train_update(session, worst_update(session))
        peaks.append(COUNTED.allocations_peak())
    held, peak = COUNTED.allocations_now(), min(peaks)
    del session, form
    return {"held": held - before, "peak": peak - before, "before": resident, "resident": memory_of("VmHWM")}


def memory_of(field: str) -> int:
    """Bytes of physical memory: VmRSS now, VmHWM at most since clear_refs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024


def main(folder: Path) -> None:
    paths = sorted(folder.glob("*.yaml"))
    bytes_of(paths[0])  # what libraries take once
    answers = {path.stem: bytes_of(path) for path in paths}
    (folder / f"peaks-{started_rank()}.json").write_text(json.dumps(answers), encoding="utf-8")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
