"""What a run's operators compute and move, whatever the device, and the time that a roofline gives a device for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from launcher.devices import Device
from launcher.forecast.kernels import Kernel, host_bytes, is_collective, kernel_of, sent_bytes
from launcher.forecast.tracker import DEVICE_OF
from launcher.host import is_on_host

# Shares of a device's peak that large kernels reach. Assumed: tuned matrix products are seen at 60 to 90 % of a data
# sheet's rate and element-wise kernels at 75 to 90 % of its bandwidth; about the middle of both. The
# ranking hardly depends on them: bench/step_time.py.
MATRIX_SHARE = 0.75
BANDWIDTH_SHARE = 0.8


@dataclass(frozen=True)
class Work:
    """Kernels with how often each runs, bytes over the link to the host, and `sent` to other processes.

    Adds up; carries no device.
    """

    kernels: Mapping[Kernel, int] = field(default_factory=dict)
    link_bytes: int = 0
    sent: int = 0

    def seconds(self, device: Device, network: float | None = None) -> float:
        """To rank with, not to promise: each kernel takes as long as its slowest part, and none overlaps another.

        `network`: bytes/s to the next process, that of cards in one computer where it is not said.
        """
        total = self.link_bytes / device.link + self.sent / (network or device.peer)
        for kernel, count in self.kernels.items():
            peak = device.half if kernel.is_half else device.float32
            arithmetic = kernel.flops / (peak * MATRIX_SHARE)
            memory = kernel.moved / (device.bandwidth * BANDWIDTH_SHARE)
            total += count * max(arithmetic, memory, kernel.launches * device.launch)
        return total

    def __add__(self, other: Work) -> Work:
        kernels = Counter(self.kernels) + Counter(other.kernels)
        return Work(kernels, self.link_bytes + other.link_bytes, self.sent + other.sent)

    def as_json(self) -> dict[str, Any]:
        kernels = [[*kernel, count] for kernel, count in self.kernels.items()]
        return {"kernels": kernels, "link_bytes": self.link_bytes, "sent": self.sent}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Work:
        kernels = {Kernel(*row[:-1]): row[-1] for row in content["kernels"]}
        return cls(kernels, content["link_bytes"], content["sent"])


class WorkRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator while it is entered, beside other modes, in training and under no_grad.

    Under inference_mode operators arrive whole that are matrix products inside: that is not for it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_paused = False
        self._kernels: Counter[Kernel] = Counter()
        self._link_bytes = self._sent = 0

    def take(self) -> Work:
        """What was recorded since the last take."""
        work = Work(dict(self._kernels), self._link_bytes, self._sent)
        self._kernels, self._link_bytes, self._sent = Counter(), 0, 0
        return work

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and torch's guard against that costs more than what it guards."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if DTensor in types:
            return NotImplemented
        if self.is_paused or func is DEVICE_OF:
            return func(*args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        if is_collective(func):
            self._sent += sent_bytes(func, args, torch.distributed.get_world_size())
        elif is_on_host():
            self._link_bytes += host_bytes(func, args, kwargs or {}, result)
        elif (kernel := kernel_of(func, args, kwargs or {}, result)) is not None:
            self._kernels[kernel] += 1
        return result
