"""Cards by the names that people write."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from launcher.devices import CPU, Device, find_device, generic_device
from launcher.errors import RecipeError
from launcher.units import GIB


@pytest.mark.parametrize(
    "text", ["RTX 3090", "rtx3090", "GeForce RTX 3090", "NVIDIA GeForce RTX-3090", "rtx 3090 24GB"]
)
def test_a_card_has_many_names(text):
    card = find_device(text)
    assert (card.name, card.memory, card.capability) == ("RTX 3090", 24 * GIB, (8, 6))


def test_a_memory_size_behind_the_name_counts():
    assert find_device("A100 80GB").memory == 80 * GIB
    assert find_device("A100").memory == 40 * GIB


@pytest.mark.parametrize(
    ("text", "name", "gib"),
    [
        ("A100-40GB", "A100", 40),
        ("NVIDIA A100-80GB", "A100", 80),
        ("A100 80 GiB", "A100", 80),
        ("GTX 1650 4GB", "GTX 1650", 4),
        ("GTX 1060 3gb", "GTX 1060", 3),
        ("V100_32GB", "V100", 32),
    ],
)
def test_a_memory_size_may_be_joined_to_the_name(text, name, gib):
    card = find_device(text)
    assert (card.name, card.memory) == (name, gib * GIB)


def test_the_larger_a100_has_the_faster_memory():
    assert find_device("A100").bandwidth == find_device("A100 40GB").bandwidth == 1555e9
    assert find_device("A100-80GB").bandwidth == 2039e9


def test_a_memory_size_that_is_none_is_an_error():
    with pytest.raises(RecipeError, match=r"'0GB' is not a memory size above zero"):
        find_device("A100-0GB")


def test_rates_are_those_of_the_data_sheet():
    card = find_device("V100")
    assert (card.bandwidth, card.float32, card.half) == (900e9, 15.7e12, 125e12)


@pytest.mark.parametrize(
    ("name", "has_bf16", "has_fp16"),
    [
        ("cpu", True, False),
        ("GTX 1080", False, True),
        ("GTX 1650", False, False),
        ("GTX 1660", False, False),
        ("T4", False, True),
        ("RTX 3060", True, True),
    ],
)
def test_precisions_are_those_that_the_units_have(name, has_bf16, has_fp16):
    device = find_device(name)
    assert (device.has_bf16, device.has_fp16) == (has_bf16, has_fp16)


@pytest.mark.parametrize("device", [CPU, find_device("RTX 3090")], ids=lambda device: device.name)
def test_a_device_goes_through_json(device):
    assert Device.from_json(json.loads(json.dumps(asdict(device)))) == device


def test_an_unknown_card_has_the_rates_of_its_generation():
    card = generic_device("NVIDIA GeForce RTX 3080 Ti", 12 * GIB, (8, 6))
    near = find_device("RTX 3060")
    assert (card.name, card.memory, card.capability) == ("NVIDIA GeForce RTX 3080 Ti", 12 * GIB, (8, 6))
    assert (card.bandwidth, card.half) == (near.bandwidth, near.half)
    assert generic_device("of tomorrow", 100 * GIB, (13, 0)).float32 == find_device("RTX 5090").float32
    assert not generic_device("NVIDIA GeForce GTX 1660 Ti", 6 * GIB, (7, 5)).has_fp16


def test_the_cpu_is_a_device_without_capability():
    assert find_device("CPU") is CPU


def test_an_unknown_card_is_an_error_that_names_the_nearest():
    with pytest.raises(RecipeError, match=r"'RTX 309' is not in the table of cards; there are cpu, RTX 3090"):
        find_device("RTX 309")
