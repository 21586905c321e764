"""What is decided between plan and first update."""

from __future__ import annotations

import pytest

from launcher.build import updates_of


@pytest.mark.parametrize(
    ("epochs", "per_epoch", "updates"), [(0.07, 100, 7), (2.5, 3, 8), (0.1, 3, 1), (1e-9, 3, 1), (3.0, 7, 21)]
)
def test_part_of_an_epoch_is_rounded_up_to_whole_updates(epochs, per_epoch, updates):
    assert updates_of(epochs, per_epoch) == updates
