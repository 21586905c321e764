"""Starting processes: what is refused, and what a failed one's exit code becomes."""

from __future__ import annotations

import pytest

from launcher.errors import LaunchError
from launcher.start import exit_code, start_processes


def test_more_processes_than_gpus_are_refused(monkeypatch, tmp_path):
    """By their number alone: the parent of training processes takes nothing of a card."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.get_device_properties", None)
    with pytest.raises(LaunchError, match="3 processes on 2 GPUs; write --processes 2"):
        start_processes(tmp_path / "r.yaml", [], 3)


@pytest.mark.parametrize(("of_process", "of_shell"), [(0, 0), (2, 2), (-9, 137), (-15, 143)])
def test_a_killed_process_ends_as_shells_count(of_process, of_shell):
    assert exit_code(of_process) == of_shell
