"""All that training depends on, in one layout whichever form saved it: any form on any number of processes goes on.

FOLDER/state.json                the update, the optimizer's class, numbers, the schedule, the gradient scaler
FOLDER/weights-00001.safetensors the model's parameters and persistent buffers, whole, by their names in the model
FOLDER/states-00001.safetensors  the optimizer's tensors, whole, as KEY/NAME: exp_avg/bert.pooler.dense.weight

Each process holds one whole tensor at a time beside its own part, the main one also the file that it writes
(tensor_files.FILE_BYTES). Every process reads the files itself, tensor by tensor from the disk's cache: no process and
no card ever holds the states of all. Where random numbers stand is not part of it.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.build import Session
from launcher.disk import writing
from launcher.errors import CheckpointError
from launcher.optimizer_states import ELEMENTWISE, kind_of
from launcher.records import write_json
from launcher.shards import shape_of
from launcher.tensor_files import TensorReader, TensorWriter
from launcher.together import together

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

    from launcher.forms import Form
    from launcher.optimizer_states import State

# Of one parameter: its numbers, and None for what is a tensor in the files.
Entry = dict[str, int | float | None]
Entries = dict[str, Entry]
FORMAT = 1
CONTENT = "state.json"


def save(session: Session, folder: Path, update: int) -> None:
    """After `update` updates, into a folder that is made; all processes call it and the main one writes.

    SaveError on all of them where that cannot be done; what is half written stays there.
    """
    form, accelerator = session.form, session.accelerator
    with together(accelerator):
        if accelerator.is_main_process:
            with writing(folder, 0):
                folder.mkdir(parents=True)
    weights, states = TensorWriter(folder, "weights"), TensorWriter(folder, "states")
    entries: Entries = {}
    for name, tensor in model_tensors(form).items():
        whole = form.whole_weight(tensor)
        if accelerator.is_main_process:
            weights.add(name, whole)
    for name, parameter in trained(form).items():
        state = form.whole_state(parameter)
        if accelerator.is_main_process:
            entries[name] = _write_state(states, name, state)
    with together(accelerator):
        if accelerator.is_main_process:
            weights.close()
            states.close()
            files = {"weights": weights.files, "states": states.files}
            with writing(folder, 0):
                write_json(folder / CONTENT, _content(session, update) | {"files": files, "states": entries})


def _write_state(states: TensorWriter, name: str, state: State) -> Entry:
    entry: Entry = {}
    for key, value in state.items():
        if isinstance(value, int | float):
            entry[key] = value
        else:
            entry[key] = None
            states.add(f"{key}/{name}", value)
    return entry


def _content(session: Session, update: int) -> dict[str, Any]:
    form = session.form
    return {
        "format": FORMAT,
        "update": update,
        "form": form.key,
        "processes": session.accelerator.num_processes,
        "optimizer": kind_of(form.plain_optimizer),
        "schedule": session.schedule.state_dict() if session.schedule is not None else None,
        "scaler": form.scaler.state_dict() if form.scaler is not None else None,
    }


def load(session: Session, folder: Path) -> int:
    """Into a session that was just built, which goes on after so many updates; all processes call it.

    CheckpointError on all of them, with everything that does not fit; nothing is changed then.
    """
    form = session.form
    with together(session.accelerator):
        content = _read_content(folder)
        weights = TensorReader(folder, content["files"]["weights"])
        states = TensorReader(folder, content["files"]["states"])
        problems = _problems(session, content, weights, states)
        if problems:
            weights.close()
            states.close()
            raise CheckpointError(str(folder), problems)
    entries: Entries = content["states"]
    with closing(weights), closing(states):
        for name, tensor in model_tensors(form).items():
            form.put_weight(tensor, weights[name])
        # A parameter that no gradient has met yet has no state.
        parameters = {name: parameter for name, parameter in trained(form).items() if entries[name]}
        form.put_states(parameters, lambda name: _read_state(states, name, entries[name]))
    if session.schedule is not None:
        session.schedule.load_state_dict(content["schedule"])
        for group, rate in zip(form.plain_optimizer.param_groups, session.schedule.get_last_lr(), strict=True):
            group["lr"] = rate
    if form.scaler is not None:
        form.scaler.load_state_dict(content["scaler"])
    return int(content["update"])


def model_tensors(form: Form) -> dict[str, Tensor]:
    """Parameters, one that is shared once, and buffers that belong to the weights; as the form holds them."""
    model = form.bare
    kept = model.state_dict().keys()
    return dict(model.named_parameters()) | {name: some for name, some in model.named_buffers() if name in kept}


def trained(form: Form) -> dict[str, Parameter]:
    return {name: parameter for name, parameter in form.bare.named_parameters() if parameter.requires_grad}


def _read_state(states: TensorReader, name: str, entry: Entry) -> State:
    return {key: states[f"{key}/{name}"] if number is None else number for key, number in entry.items()}


def _read_content(folder: Path) -> dict[str, Any]:
    try:
        content = json.loads((folder / CONTENT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(str(folder), [f"{CONTENT}: {error}"]) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(str(folder), [f"{CONTENT}: not of format {FORMAT}, which is all that is read here"])
    return content


def _problems(session: Session, content: dict[str, Any], weights: TensorReader, states: TensorReader) -> list[str]:
    """Everything that keeps this session from going on after what was saved."""
    form = session.form
    here = {name: shape_of(tensor) for name, tensor in model_tensors(form).items()}
    entries: Entries = content["states"]
    found = _differences(here, weights.shapes(), "the model")
    found += _differences(dict.fromkeys(trained(form), ()), dict.fromkeys(entries, ()), "what is trained")
    shapes = states.shapes()
    tensors = {f"{key}/{name}": name for name in entries for key, number in entries[name].items() if number is None}
    found += [f"{entry} is not in the files" for entry in tensors if entry not in shapes]
    saved, own = content["optimizer"], kind_of(form.plain_optimizer)
    if saved != own:
        found.append(f"the optimizer was {saved}, here it is {own}")
    elif own in ELEMENTWISE:
        cut = {entry: shapes[entry] for entry in tensors if shapes.get(entry) and tensors[entry] in here}
        found += _differences({entry: here[tensors[entry]] for entry in cut}, cut, "the optimizer's states")
    elif content["form"] != form.key:
        found.append(f"{own} keeps other states under {content['form']}, which saved them, than under {form.key}")
    for name, ours in (("schedule", session.schedule), ("scaler", form.scaler)):
        if (content[name] is None) != (ours is None):
            words = ("there was none", "there is one here") if content[name] is None else ("there was one", "none here")
            found.append(f"{name}: {words[0]}, {words[1]}")
    return found


def _differences(here: dict[str, tuple[int, ...]], saved: dict[str, tuple[int, ...]], where: str) -> list[str]:
    """One line for each name that is missing on one side or has another shape."""
    return [
        *(f"{name} of {where} was not saved" for name in here if name not in saved),
        *(f"{name} was saved and is not in {where}" for name in saved if name not in here),
        *(
            f"{name} of {where} has the shape {list(here[name])}, {list(saved[name])} was saved"
            for name in here
            if name in saved and here[name] != saved[name]
        ),
    ]
