"""Peaks of a phase, as a card's counters give them."""

from __future__ import annotations

import torch

from launcher.meter import MemoryMeter
from launcher.units import MIB


def test_what_a_card_gave_back_before_the_end_of_a_phase_counts_for_its_peak(monkeypatch):
    """Of 4,000 MiB 2,500 are free at the end, 1,000 are reserved; 3,000 were: the driver's own 500 stay as they are."""
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda _: (2500 * MIB, 4000 * MIB))
    monkeypatch.setattr("torch.cuda.memory_reserved", lambda _: 1000 * MIB)
    monkeypatch.setattr("torch.cuda.max_memory_reserved", lambda _: 3000 * MIB)
    monkeypatch.setattr("torch.cuda.max_memory_allocated", lambda _: 2900 * MIB)
    monkeypatch.setattr("torch.cuda.reset_peak_memory_stats", lambda _: None)
    meter = MemoryMeter(torch.device("cuda"))
    meter.enter("train")
    meter.enter("")
    expected = {"allocated": 2900 * MIB, "reserved": 3000 * MIB, "device_total": 3500 * MIB}
    assert meter.peaks == {"train": expected}
