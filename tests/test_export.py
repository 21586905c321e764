"""A model is saved whole or not at all, and what would keep it from being saved is told in words."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from launcher import export, written_model
from launcher.errors import SaveError
from launcher.export import save_model, try_save
from tests.families import make_family


@pytest.fixture
def damaged(monkeypatch):
    """The disk turns one bit over in each file of weights."""

    def damage(file: Path) -> None:
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)

    return lambda: monkeypatch.setattr(written_model, "flush", damage)


def test_a_trial_writes_everything_and_leaves_nothing(build, tmp_path, monkeypatch):
    session, seen = build(), []
    monkeypatch.setattr(written_model, "flush", lambda file: seen.append(file))
    cost = try_save(session, tmp_path)
    assert [file.name for file in seen] == ["model.safetensors"]
    assert not [entry for entry in tmp_path.iterdir() if entry.name.endswith(".tmp")]
    assert cost.bytes == sum(4 * p.numel() for p in session.model.parameters())
    assert cost.seconds > 0


# Weights that are shared, experts and prefixes that transformers holds otherwise than it writes them.
@pytest.mark.parametrize("family", ["bert", "t5", "bart", "mixtral", "qwen3_moe", "gpt2", "nomic_bert"])
def test_what_is_saved_loads_as_what_the_model_holds(build, tmp_path, family):
    from transformers import AutoModelForSequenceClassification

    session = build(model={"source": str(make_family(family, tmp_path / family)), "config": {}})
    save_model(session, tmp_path / "model", None, 1)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    expected, found = session.form.bare.state_dict(), model.state_dict()
    assert set(found) == set(expected)
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []


def test_a_file_that_the_disk_has_changed_is_an_error_and_the_older_model_stays(build, tmp_path, damaged):
    session = build()
    save_model(session, tmp_path / "model", None, 1)
    damaged()
    with pytest.raises(SaveError) as caught:
        save_model(session, tmp_path / "model", None, 2)
    assert caught.value.problems[0].endswith(" reads back with other values than the model's")
    assert caught.value.problems[1:] == ("do not trust this disk: write output.folder to another one",)
    assert "1 update of" in (tmp_path / "model" / "README.md").read_text()
    assert not (tmp_path / "model.tmp").exists()
    load_file(tmp_path / "model" / "model.safetensors")


def test_a_file_that_cannot_be_read_back_is_an_error(build, tmp_path, monkeypatch):
    monkeypatch.setattr(written_model, "flush", lambda file: file.write_bytes(file.read_bytes()[:-1]))
    with pytest.raises(SaveError, match=r"cannot be read back: model.safetensors: "):
        save_model(build(), tmp_path / "model", None, 1)


def test_tensors_that_are_missing_or_new_on_the_disk_are_named(build, tmp_path):
    session = build()
    save_model(session, tmp_path / "model", None, 1)
    tensors = session.form.weights()
    tensors["new.weight"] = tensors.pop("classifier.bias")
    with pytest.raises(SaveError) as caught:
        written_model.compare_with_disk(tmp_path / "model", tensors)
    assert caught.value.problems[:2] == (
        "classifier.bias is there and was not to be written",
        "new.weight was to be written and is not there",
    )


def test_weights_that_are_no_numbers_are_saved_as_they_are(build, tmp_path):
    session = build()
    with torch.no_grad():
        session.form.bare.classifier.bias.fill_(float("nan"))
    save_model(session, tmp_path / "model", None, 1)
    assert load_file(tmp_path / "model" / "model.safetensors")["classifier.bias"].isnan().all()


def test_a_best_model_needs_room_beside_the_one_before(build, tmp_path, monkeypatch):
    held = {"validation": {"share": 0.2}}
    session = build(data=held, training={"keep_best": "loss"})
    monkeypatch.setattr(export, "free_bytes", lambda folder: 1000)
    with pytest.raises(SaveError, match=r"cannot be written: No space left on device \(3\d\d\.\d KiB needed, "):
        try_save(session, tmp_path)
    assert not (tmp_path / "trial-save.tmp").exists()
    try_save(build(data=held), tmp_path)


def test_what_the_system_refuses_is_told_with_place_cause_sizes_and_remedy(build, tmp_path, monkeypatch):
    session = build()

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(session.form.bare, "save_pretrained", full)
    monkeypatch.setattr("launcher.disk.free_bytes", lambda folder: 2**20)
    with pytest.raises(SaveError) as caught:
        save_model(session, tmp_path / "model", None, 1)
    assert caught.value.where == str(tmp_path / "model.tmp")
    assert "KiB needed, 1.0 MiB free); free space there, or write output.folder to a larger disk" in str(caught.value)
    assert not (tmp_path / "model.tmp").exists()
