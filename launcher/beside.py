"""The forecast beside what happened, phase by phase; kept for later forecasts on this machine."""

from __future__ import annotations

from datetime import UTC, datetime

from launcher import calibration
from launcher.planner.proposal import Proposal
from launcher.records import versions

TRAINING = ("forward", "backward", "update")
Peaks = dict[str, dict[str, int]]


def compare(proposal: Proposal, peaks: Peaks) -> dict[str, tuple[int, int]]:
    """Phase -> bytes forecast and bytes seen: tensors on a CPU, what torch allocated on a card.

    The phases are the run's: its training holds the forecast's forward, backward and update.
    """
    phases = proposal.forecast.phases
    size = {phase: peak.size for phase, peak in phases.items()}
    forecast = {"train": max(size[phase] for phase in TRAINING)}
    forecast |= {phase: size[phase] for phase in ("load", "evaluate") if phase in size}
    counted = "tensors" if proposal.device.kind == "cpu" else "allocated"
    return {
        phase: (forecast[phase], peaks[phase][counted])
        for phase in ("load", "train", "evaluate")
        if phase in forecast and phase in peaks
    }


def keep(proposal: Proposal, compared: dict[str, tuple[int, int]], seconds_per_update: float) -> None:
    """For later plans; predicted seconds without what earlier runs have added to them."""
    predicted = proposal.seconds_per_epoch / proposal.updates_per_epoch / proposal.calibration.time
    calibration.keep(
        {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": proposal.device.name,
            "torch": versions()["torch"],
            "bytes": {phase: list(pair) for phase, pair in compared.items()},
            "seconds_per_update": [predicted, seconds_per_update],
        }
    )
