"""What is here: the device that would train, what it can do, and the memory of the host."""

import os
from dataclasses import dataclass

BF16_CAPABILITY = (8, 0)  # torch.cuda.is_bf16_supported() counts emulation; Ampere is the first to have the units


@dataclass(frozen=True)
class Machine:
    """`capability` is CUDA's compute capability, None on a CPU; memory in bytes, of one device."""

    device: str
    device_name: str
    capability: tuple[int, int] | None
    device_memory: int
    devices: int

    @property
    def has_bf16(self) -> bool:
        """CPUs run bf16 autocast everywhere; CUDA cards from capability 8.0."""
        return self.capability is None or self.capability >= BF16_CAPABILITY

    @property
    def has_fp16(self) -> bool:
        """GTX 16xx cards return NaN in half precision, and a CPU has no fp16 training at all."""
        return self.capability is not None and self.capability >= (5, 3) and "GTX 16" not in self.device_name


def look() -> Machine:
    """The machine this process runs on, as torch sees it."""
    import torch  # here, so that reading a recipe stays instant

    if torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        count = torch.cuda.device_count()
        return Machine("cuda", card.name, (card.major, card.minor), card.total_memory, count)
    return Machine("cpu", "CPU", None, host_memory(), 0)


def host_memory() -> int:
    """Bytes of memory in this computer."""
    import psutil

    return int(psutil.virtual_memory().total)


def started_processes() -> int:
    """How many processes a launcher says it started; 1 where none did."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def started_rank() -> int:
    """Which of them this one is."""
    return int(os.environ.get("RANK", "0"))
