"""Runs on every process of one real launch and writes what each saw: many checks for the price of one start.

two_process_job.py FOLDER    FOLDER holds recipes *.yaml; answers go to FOLDER/answers-RANK.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from accelerate.state import AcceleratorState

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from launcher.evaluate import predict
from launcher.train import rehearse, train_update
from tests.conftest import session_from
from tests.gradients import big_batch_gradient, relative_error, update_gradient


def answers_of(path: Path) -> dict[str, object]:
    """Of one recipe: gradients against one big batch, then two updates."""
    AcceleratorState._reset_state(reset_partial_state=False)  # the process group stays
    session = session_from(path, processes=2)
    errors = {}
    for name, indices in {"whole": np.arange(24), "one": np.arange(1), "seven": np.arange(7)}.items():
        expected = big_batch_gradient(session, indices)
        errors[name] = relative_error(update_gradient(session, indices), expected)
    losses = []
    for indices in session.sampler.updates(0, 3):
        losses.append(float(train_update(session, session.cutter.cut(indices)).loss))
        rehearse(session)
    weights = torch.cat([p.detach().flatten() for p in session.model.parameters()])
    held = session.validation
    logits = predict(session, *held).tolist() if held is not None else []
    torch.save(weights, path.with_name(f"{path.stem}-{session.accelerator.process_index}.pt"))
    return {"errors": errors, "losses": losses, "logits": logits}


def main(folder: Path) -> None:
    answers = {path.stem: answers_of(path) for path in sorted(folder.glob("*.yaml"))}
    rank = torch.distributed.get_rank()
    (folder / f"answers-{rank}.json").write_text(json.dumps(answers), encoding="utf-8")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
