"""The processes that train together: started rightly, or stopped with the reason before the first update."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from launcher.errors import LaunchError
from launcher.machine import started_processes

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import nn

    from launcher.settings import Precision

log = logging.getLogger(__name__)

_OTHER_FORMS = {"ACCELERATE_USE_DEEPSPEED": "DeepSpeed", "ACCELERATE_USE_FSDP": "FSDP"}
_CPU_PROCESSES = "to train on CPUs start it with `launcher run RECIPE --processes N`"


def start_accelerator(precision: Precision) -> Accelerator:
    """LaunchError where several processes were asked for and each would train a model of its own."""
    import torch
    from accelerate import Accelerator, DistributedType

    check_environment(os.environ)
    if not torch.cuda.is_available():
        # DeepSpeed, which Accelerate asks whether a model is one of its engines, would look for a card and warn.
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    # Precision always said here: `accelerate launch` exports its own, which would count otherwise.
    accelerator = Accelerator(mixed_precision=precision, step_scheduler_with_optimizer=False)
    started = started_processes()
    if accelerator.num_processes != started:
        problem = f"{started} processes were started, each sees {accelerator.num_processes}"
        if not torch.cuda.is_available():
            problem += f": no GPU is visible to torch; {_CPU_PROCESSES}"
        raise LaunchError("launch", [problem])
    if started > 1 and accelerator.distributed_type == DistributedType.NO:
        raise _separate_copies(accelerator)  # known before anything is loaded
    if accelerator.device.type == "cpu":
        _use_all_cores(accelerator)
    return accelerator


def check_environment(environ: os._Environ[str] | dict[str, str]) -> None:
    """LaunchError for what the environment shows already."""
    for form, name in _OTHER_FORMS.items():
        if environ.get(form, "").lower() in ("true", "1"):
            raise LaunchError("launch", [f"{name} is not built yet; start it without, and processes train by DDP"])
    # Accelerate's CPU launcher starts one process whatever number it was given, and says nothing (1.15).
    on_cpu = environ.get("ACCELERATE_USE_CPU", "").lower() in ("true", "1")
    # With --num_processes 2 it exports an address to meet at, and no world to meet in.
    if on_cpu and "MASTER_ADDR" in environ and "WORLD_SIZE" not in environ and "ACCELERATE_MIXED_PRECISION" in environ:
        raise LaunchError("launch", [f"several processes were asked for, accelerate started one; {_CPU_PROCESSES}"])


def check_wrapped(model: nn.Module, accelerator: Accelerator) -> None:
    """More than one process implies that something averages gradients between them."""
    from torch.nn.parallel import DistributedDataParallel

    if accelerator.num_processes > 1 and not isinstance(model, DistributedDataParallel):
        raise _separate_copies(accelerator)


def _separate_copies(accelerator: Accelerator) -> LaunchError:
    form = str(accelerator.distributed_type).rpartition(".")[2]
    problem = f"{accelerator.num_processes} processes would each train a model of their own: "
    return LaunchError("launch", [f"{problem}Accelerate's form is {form}, which joins no gradients; {_CPU_PROCESSES}"])


def _use_all_cores(accelerator: Accelerator) -> None:
    """`accelerate launch` sets OMP_NUM_THREADS=1 for good multi-GPU habits; on a CPU that idles the other cores."""
    import torch

    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    share = max(1, len(os.sched_getaffinity(0)) // local) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if os.environ.get("OMP_NUM_THREADS") == "1" and "ACCELERATE_MIXED_PRECISION" in os.environ and share > 1:
        torch.set_num_threads(share)
        log.info("%d threads; accelerate launch had left one", share)
