"""What ZeRO refuses and says by itself."""

from __future__ import annotations

import pytest

from launcher.check import check
from launcher.devices import this_card
from launcher.errors import RecipeError
from launcher.job import Job
from launcher.plan import make_plan
from launcher.strategies.mixed_precision import MixedPrecision
from launcher.units import format_bytes

T4 = this_card("Tesla T4", 2**34, (7, 5))
ABSENT = "DeepSpeed is not installed here (the launcher brings it on Linux only); use strategies.fsdp"


def told(path, processes):
    with pytest.raises(RecipeError) as error:
        check(path, processes=processes)
    return [problem.partition(": ")[2] for problem in error.value.problems]


def test_a_machine_without_deepspeed_is_told_so_before_anything_starts(recipe, monkeypatch):
    monkeypatch.setattr("launcher.strategies.zero.find_spec", lambda name: None if name == "deepspeed" else 1 / 0)
    path = recipe(strategies={"zero": True})
    assert told(path, processes=2) == [f"strategies.zero: {ABSENT}"]
    check(path, processes=1)  # holds everything itself, without DeepSpeed
    check(path, processes=2, target=T4)  # somebody else's
    assert told(recipe(strategies={"zero": {"offload": "optimizer"}}), processes=1) == [f"strategies.zero: {ABSENT}"]


def test_a_disk_needs_the_library_that_writes_to_it(recipe, monkeypatch, tmp_path):
    path = recipe(strategies={"zero": {"stage": 3, "offload": "parameters", "nvme": str(tmp_path)}})
    monkeypatch.setattr("launcher.strategies.zero.find_library", lambda name: f"lib{name}.so.1")
    check(path, processes=2)
    monkeypatch.setattr("launcher.strategies.zero.find_library", lambda name: None)
    assert told(path, processes=2) == [
        "strategies.zero.nvme: DeepSpeed needs libaio, which is not here; install libaio-dev, or leave nvme out"
    ]


def test_adafactor_under_zero_is_told_its_price_in_bytes(recipe, tiny_model):
    from transformers import BertModel

    path = recipe(strategies={"zero": {"stage": 2}, "adafactor": True})
    size = 4 * sum(parameter.numel() for parameter in BertModel.from_pretrained(tiny_model).parameters())
    note = f"zero: adafactor keeps 4 bytes a parameter, {format_bytes(size)} in all: its states cannot be factored on "
    note += "DeepSpeed's flat shards, and it steps otherwise than on one process"
    assert note in make_plan(check(path, processes=2)).reasons
    assert note not in make_plan(check(path, processes=1)).reasons


def test_half_precision_of_old_cards_is_refused_under_zero_alone(recipe):
    half = MixedPrecision(precision="fp16")
    with_zero, without = (check(recipe(strategies=s)).recipe for s in ({"zero": True}, {"fsdp": True}))
    assert half.problems(Job(without, None, 2, T4)) == []
    assert [problem.text for problem in half.problems(Job(with_zero, None, 2, T4))] == [
        "under ZeRO fp16's gradient would be clipped before its scale is taken back; use bf16 or strategies.fsdp"
    ]
