"""Training states on one process: what goes on bit for bit, and what is refused with everything that is wrong."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch

from launcher import tensor_files, training_state
from launcher.errors import CheckpointError, SaveError
from launcher.forms import zero_states
from launcher.tensor_files import TensorReader, TensorWriter
from launcher.train import train_update

OFF = {"uniform_dynamic_padding": False, "fast_tokenizer": False}
PLAIN = {}
OFFLOADED = {"optimizer_offload": {}}
ADAFACTOR = {"adafactor": {"preset": "external_rate"}}
OWN_RATE = {"adafactor": {"preset": "own_rate"}}
EIGHT_BIT = {"eight_bit_optimizer": {"paged": False}}
FROZEN = {"freezing": {"embeddings": True}}


@pytest.fixture
def session_of(build):
    """A session of the tiny model, of six updates, with these strategies."""

    def make(strategies, **sections):
        return build(strategies=OFF | strategies, training={"updates": 6, "weight_decay": 0.01}, **sections)

    return make


def train(session, first, end):
    session.set_train_mode()
    for indices in session.sampler.updates(first, end):
        train_update(session, session.cutter.cut(indices))


def weights(session):
    return {name: tensor.clone() for name, tensor in session.form.weights().items()}


def unequal(some, others):
    return [name for name in some if not torch.equal(some[name], others[name])]


PAIRS = [(one, one) for one in (PLAIN, OFFLOADED, ADAFACTOR, OWN_RATE, EIGHT_BIT, FROZEN)]
PAIRS += [(PLAIN, OFFLOADED), (OFFLOADED, PLAIN)]


@pytest.mark.parametrize(("saved", "loaded"), PAIRS, ids=lambda one: ",".join(one) or "plain")
def test_what_goes_on_after_a_load_is_bit_for_bit_what_was_not_interrupted(session_of, tmp_path, saved, loaded):
    session = session_of(saved)
    train(session, 0, 3)
    training_state.save(session, tmp_path / "state", 3)
    train(session, 3, 6)
    expected = weights(session)
    session = session_of(loaded)
    assert training_state.load(session, tmp_path / "state") == 3
    train(session, 3, 6)
    assert unequal(weights(session), expected) == []


def test_a_state_before_any_update_goes_on(session_of, tmp_path):
    session = session_of(PLAIN)
    training_state.save(session, tmp_path / "state", 0)
    train(session, 0, 2)
    expected = weights(session)
    session = session_of(PLAIN)
    assert training_state.load(session, tmp_path / "state") == 0
    train(session, 0, 2)
    assert unequal(weights(session), expected) == []


def test_buffers_that_belong_to_the_weights_are_among_them(session_of, tmp_path):
    session = session_of(PLAIN)
    session.form.bare.register_buffer("running_mean", torch.full((3,), 7.0))
    session.form.bare.register_buffer("scratch", torch.zeros(3), persistent=False)
    training_state.save(session, tmp_path / "state", 0)
    session.form.bare.running_mean.zero_()
    training_state.load(session, tmp_path / "state")
    assert session.form.bare.running_mean.tolist() == [7.0] * 3
    reader = TensorReader(tmp_path / "state", ["weights-00001.safetensors"])
    assert "scratch" not in reader.shapes()


def test_the_gradient_scaler_goes_on_with_its_scale(session_of, tmp_path):
    session = session_of(PLAIN)
    session.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
    training_state.save(session, tmp_path / "state", 0)
    session = session_of(PLAIN)
    assert refusal(session, tmp_path / "state") == ["scaler: there was one, none here"]
    session.accelerator.scaler = torch.amp.GradScaler("cpu")
    training_state.load(session, tmp_path / "state")
    assert session.form.scaler.get_scale() == 512.0


def refusal(session, folder):
    """The problems of a load, which leaves the weights as they are."""
    before = weights(session)
    with pytest.raises(CheckpointError) as caught:
        training_state.load(session, folder)
    assert unequal(weights(session), before) == []
    assert caught.value.where == str(folder)
    assert caught.value.exit_code == 2
    return list(caught.value.problems)


@pytest.fixture
def state(session_of, tmp_path):
    """A plain state after one update."""
    session = session_of(PLAIN)
    train(session, 0, 1)
    training_state.save(session, tmp_path / "state", 1)
    return tmp_path / "state"


def test_another_optimizer_is_refused_by_both_names(session_of, state):
    adafactor = "transformers.optimization:Adafactor"
    assert refusal(session_of(ADAFACTOR), state) == [
        f"the optimizer was torch.optim.adamw:AdamW, here it is {adafactor}"
    ]


@pytest.mark.parametrize(
    ("strategies", "optimizer"),
    [(ADAFACTOR, "transformers.optimization:Adafactor"), (EIGHT_BIT, "bitsandbytes.optim.adamw:AdamW8bit")],
)
def test_states_that_belong_to_their_form_are_refused_by_another(session_of, tmp_path, strategies, optimizer):
    session = session_of(strategies)
    train(session, 0, 1)
    training_state.save(session, tmp_path / "state", 1)
    change(tmp_path / "state", form="zero")
    assert refusal(session_of(strategies), tmp_path / "state") == [
        f"{optimizer} keeps other states under zero, which saved them, than under ddp"
    ]


def change(state, **entries):
    path = state / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def test_everything_that_does_not_fit_is_listed(session_of, state):
    """Five classes instead of two, and embeddings that were trained are frozen here."""
    session = session_of(FROZEN)
    session.form.bare.classifier = torch.nn.Linear(64, 5)
    shapes = "has the shape [5, 64], [2, 64] was saved", "has the shape [5], [2] was saved"
    frozen = [f"bert.embeddings.{name}_embeddings.weight" for name in ("position", "token_type", "word")]
    frozen += [f"bert.embeddings.LayerNorm.{name}" for name in ("bias", "weight")]
    assert sorted(refusal(session, state)) == sorted(
        [
            *(f"{name} was saved and is not in what is trained" for name in frozen),
            *(f"classifier.{n} of the model {text}" for n, text in zip(("weight", "bias"), shapes, strict=True)),
            *(
                f"{key}/classifier.{n} of the optimizer's states {text}"
                for n, text in zip(("weight", "bias"), shapes, strict=True)
                for key in ("exp_avg", "exp_avg_sq")
            ),
        ]
    )


def test_parameters_that_are_missing_on_either_side_are_listed(session_of, state):
    session = session_of(PLAIN)
    session.form.bare.head = torch.nn.Linear(2, 2, bias=False)
    session.form.bare.bert.pooler = torch.nn.Identity()
    assert sorted(refusal(session, state)) == [
        "bert.pooler.dense.bias was saved and is not in the model",
        "bert.pooler.dense.bias was saved and is not in what is trained",
        "bert.pooler.dense.weight was saved and is not in the model",
        "bert.pooler.dense.weight was saved and is not in what is trained",
        "head.weight of the model was not saved",
        "head.weight of what is trained was not saved",
    ]


def test_a_state_that_is_not_in_the_files_is_named(session_of, state):
    entries = json.loads((state / "state.json").read_text())["states"]
    change(state, states=entries | {"classifier.bias": {"exp_avg": None, "momentum": None}})
    assert refusal(session_of(PLAIN), state) == ["momentum/classifier.bias is not in the files"]


def test_files_that_are_missing_or_damaged_are_named(session_of, state):
    session = session_of(PLAIN)
    whole = (state / "states-00001.safetensors").read_bytes()
    (state / "states-00001.safetensors").write_bytes(whole[:-100])
    assert re.match(r"states-00001\.safetensors: .", refusal(session, state)[0])
    (state / "weights-00001.safetensors").unlink()
    assert re.match(r"weights-00001\.safetensors: No such file", refusal(session, state)[0])
    (state / "state.json").write_text("{")
    assert re.match(r"state\.json: ", refusal(session, state)[0])
    (state / "state.json").write_text('{"format": 2}')
    assert refusal(session, state) == ["state.json: not of format 1, which is all that is read here"]
    (state / "state.json").unlink()
    assert re.match(r"state\.json: .*No such file", refusal(session, state)[0])


def test_a_schedule_that_was_not_there_is_refused(session_of, state):
    change(state, schedule=None)
    assert refusal(session_of(PLAIN), state) == ["schedule: there was none, there is one here"]


def test_zero_refuses_parameters_with_different_numbers_of_steps():
    flat = torch.zeros(4)
    inner = SimpleNamespace(state=defaultdict(dict))
    optimizer = SimpleNamespace(fp32_partitioned_groups_flat=[flat], optimizer=inner)
    states = {"embedding": {"step": torch.tensor(3.0)}, "expert": {"step": torch.tensor(2.0)}}
    with pytest.raises(CheckpointError) as caught:
        zero_states.put_states(optimizer, dict.fromkeys(states), states.__getitem__)
    assert caught.value.problems == ("step is 3 of embedding and 2 of expert; ZeRO keeps one for all",)


def test_files_hold_no_more_than_their_size_and_come_back_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(tensor_files, "FILE_BYTES", 100)
    tensors = {str(number): torch.full((number,), float(number)) for number in (10, 12, 30, 3, 2)}
    writer = TensorWriter(tmp_path, "some")
    for name, tensor in tensors.items():
        writer.add(name, tensor)
    writer.close()
    assert writer.files == [f"some-0000{number}.safetensors" for number in (1, 2, 3)]
    assert writer.bytes == 4 * sum(map(int, tensors))
    reader = TensorReader(tmp_path, writer.files)
    assert unequal(tensors, {name: reader[name] for name in tensors}) == []


def test_a_folder_that_cannot_be_written_is_told_at_the_end(tmp_path, monkeypatch):
    """Other processes go on gathering meanwhile."""
    monkeypatch.setattr(tensor_files, "FILE_BYTES", 8)
    writer = TensorWriter(tmp_path / "missing", "some")
    for name in "abc":
        writer.add(name, torch.zeros(2))
    with pytest.raises(SaveError, match=r"missing: 1 problem\n  cannot be written: No such file .*8 B needed"):
        writer.close()


def test_a_state_is_not_written_over_another(session_of, state):
    with pytest.raises(SaveError, match="File exists"):
        training_state.save(session_of(PLAIN), state, 1)
