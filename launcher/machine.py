"""What is here: the device that would train, and the memory of the host."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from launcher.devices import CPU, Device, this_card


@dataclass(frozen=True)
class Machine:
    """One of its devices, and how many GPUs of that kind there are."""

    device: Device
    gpus: int


def look() -> Machine:
    """The machine this process runs on, as torch sees it."""
    import torch  # here, so that reading a recipe stays instant

    if torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        device = this_card(card.name, card.total_memory, (card.major, card.minor))
        return Machine(device, torch.cuda.device_count())
    return Machine(replace(CPU, memory=host_memory()), 0)


def host_memory() -> int:
    """Bytes of memory in this computer."""
    import psutil

    return int(psutil.virtual_memory().total)


def free_memory(device: Device) -> int:
    """Bytes that this machine's device has free now, the host's on a CPU."""
    import psutil

    if device.kind == "cpu":
        return int(psutil.virtual_memory().available)
    import torch

    return int(torch.cuda.mem_get_info()[0])


def started_processes(environ: Mapping[str, str] = os.environ) -> int:
    """How many processes a launcher says it started, on all machines; 1 where none did."""
    return int(environ.get("WORLD_SIZE", "1"))


def started_here(environ: Mapping[str, str] = os.environ) -> int:
    """Those of them that are on this machine."""
    return int(environ.get("LOCAL_WORLD_SIZE", "1"))


def started_rank() -> int:
    """Which of them this one is."""
    return int(os.environ.get("RANK", "0"))


def speaks_here() -> bool:
    """Whether this process tells what all on this machine have met: another machine may have met something else."""
    return started_local_rank() == 0


def is_started() -> bool:
    """Whether `accelerate launch`, torchrun or the like has started this process: then it starts none itself."""
    by_name = "TORCHELASTIC_RUN_ID" in os.environ or "ACCELERATE_MIXED_PRECISION" in os.environ
    return by_name or started_processes() > 1


def started_local_rank() -> int:
    """Which of those on this node."""
    return int(os.environ.get("LOCAL_RANK", "0"))
