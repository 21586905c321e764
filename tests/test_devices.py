"""Cards by the names that people write."""

from __future__ import annotations

import pytest

from launcher.devices import CPU, find_device
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


def test_the_cpu_is_a_device_without_capability():
    assert find_device("CPU") is CPU


def test_an_unknown_card_is_an_error_that_names_the_nearest():
    with pytest.raises(RecipeError, match=r"'RTX 309' is not in the table of cards; there are cpu, RTX 3090"):
        find_device("RTX 309")
