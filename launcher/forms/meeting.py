"""How processes find each other where Accelerate would not look, or look in the wrong way."""

from __future__ import annotations

import os
import socket


def meet_on_cpu() -> None:
    """Before Accelerate is asked: with this left, it would train on CPUs by DDP whatever it is asked for (1.15)."""
    os.environ.pop("ACCELERATE_USE_CPU", None)


def meet_alone() -> None:
    """One process that no launcher started is a world of one; DeepSpeed would look for MPI otherwise."""
    if "WORLD_SIZE" in os.environ:
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    os.environ.update(world | {"MASTER_PORT": str(port)})
