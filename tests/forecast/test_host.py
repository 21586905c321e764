"""What a run keeps in the host's memory is no part of a card's."""

from __future__ import annotations

import torch

from launcher.devices import CPU, find_device
from launcher.forecast.peak import find_peaks
from launcher.forecast.tracker import Tracker
from launcher.host import is_on_host, on_host


def tracked():
    """1,000 bytes on the host to begin with, then 3,000; 10,000 of the device throughout."""
    with Tracker() as tracker:
        device = torch.zeros(10_000, dtype=torch.uint8)
        with on_host():
            first = torch.zeros(1_000, dtype=torch.uint8)
        tracker.name([first], "optimizer")
        del first
        with on_host():
            second = torch.zeros(3_000, dtype=torch.uint8)
        visitor = device[:3_000]
        with on_host():
            visitor.copy_(second)
        tracker.name([second], "optimizer")
    return tracker


def test_a_cards_peak_is_without_it():
    answer = find_peaks(tracked(), find_device("GTX 1650"))
    assert answer.host_bytes == 3_000
    assert answer.peak.rows == {"temporaries": 10_000}


def test_a_cpu_has_no_other_memory():
    answer = find_peaks(tracked(), CPU)
    assert answer.host_bytes == 3_000
    assert answer.peak.rows == {"temporaries": 10_000, "host": 3_000}


def test_what_is_made_after_it_is_the_devices_again():
    with on_host():
        with on_host():
            assert is_on_host()
        assert is_on_host()
    assert not is_on_host()
