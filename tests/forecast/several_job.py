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


def bytes_of(path: Path) -> dict[str, int]:
    """Of one recipe: what is held after two worst updates, and the peak of the second."""
    forget_forms()
    gc.collect()
    os.environ["ACCELERATE_USE_CPU"] = "true"
    before = COUNTED.allocations_now()
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
    COUNTED.allocations_reset()
    train_update(session, worst_update(session))
    held, peak = COUNTED.allocations_now(), COUNTED.allocations_peak()
    del session, form
    return {"held": held - before, "peak": peak - before}


def main(folder: Path) -> None:
    paths = sorted(folder.glob("*.yaml"))
    bytes_of(paths[0])  # what libraries take once
    answers = {path.stem: bytes_of(path) for path in paths}
    (folder / f"peaks-{started_rank()}.json").write_text(json.dumps(answers), encoding="utf-8")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
