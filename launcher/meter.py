"""What memory each phase of a run really took at its fullest moment."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

from launcher.simulated_card import SimulatedCard

_CLEAR_REFS = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


class MemoryMeter:
    """Phases follow one another; a phase entered again keeps its larger peak. Bytes, of this process.

    The first one's peak is that since the process started: what came before it stands nowhere else.
    """

    def __init__(self, device: torch.device, card: SimulatedCard | None = None) -> None:
        self.device, self.card = device, card
        self.phase = ""
        self.peaks: dict[str, dict[str, int]] = {}

    def enter(self, phase: str) -> None:
        """Ends the phase before; `""` ends the last."""
        if self.phase:
            before = self.peaks.get(self.phase, {})
            self.peaks[self.phase] = {name: max(size, before.get(name, 0)) for name, size in self._read().items()}
        self.phase = phase
        if self.peaks:
            self._reset()

    def now(self) -> int:
        """Peak of the running phase so far: allocated on a card, tensors on a simulated one, else resident."""
        return next(iter(self._read().values()))

    def _read(self) -> dict[str, int]:
        if self.device.type == "cuda":
            free, total = torch.cuda.mem_get_info(self.device)
            reserved = torch.cuda.max_memory_reserved(self.device)
            # The driver knows no peak: near its limit torch gives segments back, and the end of a phase shows less.
            besides = total - free - torch.cuda.memory_reserved(self.device)
            return {
                "allocated": torch.cuda.max_memory_allocated(self.device),
                "reserved": reserved,
                "device_total": besides + reserved,
            }
        tensors = {"tensors": self.card.peak} if self.card is not None else {}
        return tensors | {"resident": peak_resident()}

    def _reset(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            return
        if self.card is not None:
            self.card.reset_peak()
        _reset_peak_resident()


def peak_resident() -> int:
    """Bytes: Linux's high-water mark since the last reset; elsewhere what is resident now."""
    if _STATUS.exists():
        for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return int(psutil.Process().memory_info().rss)


def _reset_peak_resident() -> None:
    if _CLEAR_REFS.exists():
        try:
            _CLEAR_REFS.write_text("5", encoding="ascii")
        except OSError:
            return  # some containers forbid it: the peak is then that of the whole run so far
