"""Trains by every form on the processes of one launch: many forms for the price of one start.

forms_job.py FOLDER    FOLDER holds recipes *.yaml; whole weights go to FOLDER/NAME.pt, the rest to answers-RANK.json

What a recipe cannot say stands in its name: NAME_sgd trains by SGD with momentum.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from launcher.build import Session, build_session
from launcher.check import check
from launcher.evaluate import predict
from launcher.export import save_model
from launcher.load import load_parts
from launcher.machine import started_processes, started_rank
from launcher.plan import make_plan
from launcher.processes import start_form
from launcher.train import rehearse, train_update
from tests.conftest import forget_forms


def session_of(path: Path) -> Session:
    """As the product builds it, in a process that may have built others."""
    forget_forms()
    os.environ["ACCELERATE_USE_CPU"] = "true"  # as `launcher run` starts processes without a card
    plan = make_plan(check(path, processes=started_processes()))
    if path.stem.endswith("_sgd"):
        plan.settings.optimizer, plan.settings.optimizer_options = "torch.optim:SGD", {"momentum": 0.9}
    return build_session(plan, start_form(plan), load_parts(plan))


def answers_of(path: Path) -> dict[str, Any]:
    """Of one recipe: what each update reported, what it predicts; the main process keeps its whole weights."""
    session = session_of(path)
    session.set_train_mode()
    losses, norms = [], []
    for number, indices in enumerate(session.sampler.updates(0, session.total_updates)):
        result = train_update(session, session.cutter.cut(indices))
        losses.append(float(result.loss))
        norms.append(float(result.gradient_norm))
        if number == 0:
            rehearse(session)
    logits = predict(session, *session.validation).tolist() if session.validation is not None else []
    weights = session.form.weights()
    if started_rank() == 0:
        torch.save({name: tensor.clone() for name, tensor in weights.items()}, path.with_suffix(".pt"))
    save_model(session, path.with_name(f"{path.stem}-model"), None, session.total_updates)
    parsed = session.model._config._param_dict if type(session.form).__name__ == "Zero" else None
    return {
        "deepspeed": parsed,
        "form": type(session.form).__name__,
        "wrapper": type(session.model).__name__,
        "losses": losses,
        "norms": norms,
        "logits": logits,
    }


def main(folder: Path) -> None:
    answers = {}
    for path in sorted(folder.glob("*.yaml")):
        answers[path.stem] = answers_of(path)
        gc.collect()
    (folder / f"answers-{started_rank()}.json").write_text(json.dumps(answers), encoding="utf-8")
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
