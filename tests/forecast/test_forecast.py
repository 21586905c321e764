"""Promise 2: the forecast is the run. Fake tensors against the allocator's own events of a real CPU run."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from launcher.check import check
from launcher.devices import CPU, find_device
from launcher.errors import DataError, ForecastError
from launcher.forecast.fake_world import fake_world
from launcher.forecast.start import forecast
from launcher.forecast.tracker import Tracker
from launcher.offloaded_adamw import CHUNK_BYTES, SLOTS
from launcher.strategies import ALL
from launcher.units import MIB
from tests.conftest import make_tiny_model
from tests.families import FAMILIES, HELD_OUT, make_family
from tests.forecast.real_peak import forecast_peak, real_peak

OFF = {"uniform_dynamic_padding": False, "fast_tokenizer": False}
EVALUATED = {"validation": {"share": 0.25}}
TOLERANCE = 0.01  # tiny models: a few kilobytes of scalars count
UNLIKE = ["bert", "deberta-v2", "modernbert", "gpt2", "llama", "xlnet"]  # each runs other operators than the rest
HALF = {"mixed_precision": {"precision": "bf16"}}
each = pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.key)


def error_of(build, recipe, **sections):
    """(forecast - real) / real."""
    real = real_peak(build(**sections))
    return forecast_peak(recipe(**sections)) / real - 1


@each
def test_every_strategy_is_forecast_without_a_formula_of_its_own(build, recipe, cls):
    sections = {"strategies": OFF | {cls.key: cls.example}, "data": EVALUATED}
    assert abs(error_of(build, recipe, **sections)) < TOLERANCE


@pytest.mark.parametrize("model_type", [name for name in FAMILIES if name not in HELD_OUT])
def test_every_family_is_forecast(build, recipe, model_type, tmp_path):
    model = {"source": str(make_family(model_type, tmp_path / "model", width=64)), "config": {}}
    strategies = {"uniform_dynamic_padding": True, "gradient_accumulation": {"tokens": 256}}
    assert abs(error_of(build, recipe, model=model, strategies=strategies)) < TOLERANCE


@pytest.mark.parametrize("model_type", UNLIKE)
def test_families_are_forecast_in_half_precision(build, recipe, model_type, tmp_path):
    model = {"source": str(make_family(model_type, tmp_path / "model")), "config": {}}
    assert abs(error_of(build, recipe, model=model, strategies=OFF | HALF, data=EVALUATED)) < TOLERANCE


def test_half_precision_with_checkpointing_is_forecast(build, recipe):
    strategies = OFF | HALF | {"gradient_checkpointing": True, "gradient_accumulation": {"micro_batch": 8}}
    assert abs(error_of(build, recipe, strategies=strategies)) < TOLERANCE


def test_a_cpu_is_forecast_with_the_threads_that_the_run_would_have(recipe, monkeypatch):
    path, seen = recipe(strategies=OFF | HALF), set()
    for threads in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        answer = forecast(path, [], CPU)
        seen.add(sum(peak.rows.get("temporaries", 0) for peak in answer.phases.values()))
    assert len(seen) == 2


def test_adafactors_own_rate_which_reads_values_is_forecast(build, recipe):
    strategies = OFF | {"adafactor": {"preset": "own_rate"}}
    assert abs(error_of(build, recipe, strategies=strategies)) < TOLERANCE


def test_weights_are_not_needed(recipe, tmp_path):
    """A model of 125 million parameters from its config alone."""
    folder = big_roberta(tmp_path)
    (folder / "model.safetensors").write_bytes(b"")
    answer = forecast(recipe(model={"source": str(folder), "config": {}}), [], CPU)
    assert answer.peak.rows["weights"] == pytest.approx(4 * 124_647_170, rel=1e-4)


def big_roberta(folder):
    from transformers import RobertaConfig

    make_tiny_model(folder / "roberta")
    config = RobertaConfig(vocab_size=50265, max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5)
    config.save_pretrained(folder / "roberta")
    return folder / "roberta"


def test_a_card_keeps_smaller_dropout_masks_than_a_cpu(recipe):
    path = recipe(model={"config": {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}})
    on_cpu, on_card = (forecast(path, [], find_device(name)) for name in ("cpu", "RTX 3090"))
    assert on_card.phases["forward"].rows["activations"] < on_cpu.phases["forward"].rows["activations"]
    assert on_cpu.allocated is None
    assert on_cpu.reserved is None
    assert on_card.reserved >= on_card.allocated >= on_card.peak.size


def test_the_batchs_own_values_are_known_and_others_said_to_be_missing():
    with fake_world():
        ids = torch.from_numpy(np.array([[5, 3], [3, 3]]))
        assert (ids + 0)[ids.eq(3)].shape == (3,)
    with pytest.raises(ForecastError, match=r"aten\.nonzero\.default asks this model for values"), fake_world():
        torch.ones(4).nonzero()


def test_kernels_with_buffers_that_no_operator_shows_are_refused():
    with pytest.raises(ForecastError, match=r"convolution\.default takes memory that cannot be followed"), Tracker():
        torch.nn.Conv1d(4, 4, 1)(torch.zeros(1, 4, 8))


def test_mistakes_in_the_data_keep_their_kind(recipe):
    with pytest.raises(DataError, match=r"is not a number; task.problem: regression needs one"):
        forecast(recipe(task={"problem": "regression"}), [], CPU)


def traced_in(path, precision, device, monkeypatch):
    """As if the recipe had asked for this precision, which the machine that runs this test may not have."""
    from accelerate.state import AcceleratorState

    from launcher.forecast import trace
    from launcher.plan import make_plan

    def with_precision(job):
        plan = make_plan(job)
        plan.settings.precision = precision
        return plan

    monkeypatch.setattr(trace, "make_plan", with_precision)
    AcceleratorState._reset_state(reset_partial_state=True)
    return trace.trace(check(path), find_device(device))


@pytest.mark.parametrize("model_type", UNLIKE)
def test_half_precision_on_a_card_is_forecast(recipe, model_type, tmp_path, monkeypatch):
    path = recipe(model={"source": str(make_family(model_type, tmp_path / "model")), "config": {}}, data=EVALUATED)
    plain, half = (traced_in(path, precision, "V100", monkeypatch) for precision in ("no", "fp16"))
    # Weights, gradients and the optimizer's states stay float32.
    assert half.phases["load"] == plain.phases["load"]
    assert half.phases["update"] == plain.phases["update"]
    assert half.peak.size < plain.peak.size


def test_offloaded_states_leave_the_card_and_count_for_the_host(recipe, tmp_path):
    source = {"source": str(big_roberta(tmp_path)), "config": {}}
    card = find_device("GTX 1650")
    plain = forecast(recipe(model=source, strategies=OFF), [], card)
    offloaded = forecast(recipe(model=source, strategies=OFF | {"optimizer_offload": True}), [], card)
    weights = 4 * sum(p.numel() for p in trained_parameters(source["source"]))
    assert plain.host_bytes == 0
    assert offloaded.host_bytes == 2 * weights
    # What stays is the number of updates that each tensor has seen.
    steps = 4 * len(trained_parameters(source["source"]))
    assert plain.peak.rows["optimizer"] == 2 * weights + steps
    assert offloaded.phases["backward"].rows["optimizer"] == steps
    assert offloaded.phases["update"].rows["temporaries"] < SLOTS * CHUNK_BYTES + MIB
    assert "host" not in offloaded.peak.rows
    assert offloaded.peak.size == plain.peak.size - 2 * weights
    assert offloaded.reserved < plain.reserved - 1.9 * weights


def trained_parameters(folder):
    from transformers import AutoConfig, AutoModelForSequenceClassification

    with torch.device("meta"):
        return list(AutoModelForSequenceClassification.from_config(AutoConfig.from_pretrained(folder)).parameters())


def test_on_a_cpu_the_hosts_memory_is_the_devices(recipe):
    answer = forecast(recipe(strategies=OFF | {"optimizer_offload": True}), [], CPU)
    assert answer.phases["update"].rows["host"] == answer.host_bytes > 0


def test_rows_add_up_to_the_peak(recipe):
    answer = forecast(recipe(data=EVALUATED), [], CPU)
    assert set(answer.phases) == {"load", "forward", "backward", "update", "evaluate"}
    assert all(sum(peak.rows.values()) == peak.size for peak in answer.phases.values())
    assert answer.peak.size == max(peak.size for peak in answer.phases.values())


def test_few_long_texts_are_forecast_beside_many_short_ones(build, recipe, tmp_path):
    """DeBERTa keeps all scores: one text of 60 tokens takes more than four of 16, which count for more."""
    rows = [{"text": " ".join(["room"] * words), "label": "ab"[words % 2]} for words in [14, 13] * 19 + [58]]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    sections = {
        "model": {
            "source": str(make_family("deberta-v2", tmp_path / "model")),
            "config": {"num_attention_heads": 16},
        },
        "data": {"train": str(tmp_path / "rows.jsonl")},
        "strategies": {"uniform_dynamic_padding": True, "gradient_accumulation": {"tokens": 64}},
        "training": {"batch_size": 10},
    }
    assert 0 <= forecast_peak(recipe(**sections)) / trained_peak(build(**sections)) - 1 < TOLERANCE


def test_a_short_update_that_is_whole_is_no_reason_to_forget_the_long_one_that_is_cut(build, recipe, tmp_path):
    """Ten short texts go at once; beside a long one they are cut, and the second part meets gradients."""
    rows = [{"text": " ".join(["room"] * words), "label": "ab"[words > 20]} for words in [10] * 57 + [48] * 3]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    sections = {
        "data": {"train": str(tmp_path / "rows.jsonl")},
        "strategies": OFF | {"dynamic_padding": True, "gradient_accumulation": {"tokens": 120}},
        "training": {"batch_size": 10},
    }
    assert forecast_peak(recipe(**sections)) >= trained_peak(build(**sections))


def trained_peak(session):
    """Of all updates of an epoch, as the run cuts them."""
    from launcher.simulated_card import SimulatedCard
    from launcher.train import train_update

    card = SimulatedCard(10**12)
    card.hold([*session.model.parameters(), *session.model.buffers()])
    session.set_train_mode()
    with card:
        for indices in session.sampler.updates(0, session.sampler.updates_per_epoch):
            train_update(session, session.cutter.cut(indices))
    return card.peak
