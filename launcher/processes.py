"""The processes that train together: started rightly, or stopped with the reason before the first update."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from launcher.errors import LaunchError
from launcher.forms.base import CPU_PROCESSES, apart
from launcher.machine import started_processes

if TYPE_CHECKING:
    from accelerate import Accelerator

    from launcher.forms import Form
    from launcher.plan import Plan
    from launcher.settings import Precision, Settings

log = logging.getLogger(__name__)

_OTHER_FORMS = {"ACCELERATE_USE_DEEPSPEED": ("zero", "DeepSpeed"), "ACCELERATE_USE_FSDP": ("fsdp", "FSDP")}


def start_form(plan: Plan, precision: Precision | None = None) -> Form:
    """The plan's form, its processes met; `precision` is the plan's own where none is given.

    LaunchError where several processes were asked for and each would train a model of its own.
    """
    import torch
    from accelerate import DistributedType

    from launcher.forms import make_form

    check_environment(os.environ, plan.settings)
    if not torch.cuda.is_available():
        # DeepSpeed, which Accelerate asks whether a model is one of its engines, would look for a card and warn.
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    started = started_processes()
    form = make_form(plan)
    accelerator = form.start(precision or plan.settings.precision)
    if accelerator.num_processes != started:
        problem = f"{started} processes were started, each sees {accelerator.num_processes}"
        if not torch.cuda.is_available():
            problem += f": no GPU is visible to torch; {CPU_PROCESSES}"
        raise LaunchError("launch", [problem])
    if started > 1 and accelerator.distributed_type == DistributedType.NO:
        raise apart(accelerator)  # known before anything is loaded
    if accelerator.device.type == "cpu":
        _use_all_cores(accelerator)
    return form


def check_environment(environ: os._Environ[str] | dict[str, str], settings: Settings) -> None:
    """LaunchError for what the environment shows already."""
    for form, (key, name) in _OTHER_FORMS.items():
        if environ.get(form, "").lower() in ("true", "1") and settings.form != key:
            problem = f"accelerate's configuration says {name}, the recipe {settings.form.upper()}"
            raise LaunchError("launch", [f"{problem}; write strategies.{key}, or take another configuration"])
    # Accelerate's CPU launcher starts one process whatever number it was given, and says nothing (1.15).
    on_cpu = environ.get("ACCELERATE_USE_CPU", "").lower() in ("true", "1")
    # With --num_processes 2 it exports an address to meet at, and no world to meet in.
    if on_cpu and "MASTER_ADDR" in environ and "WORLD_SIZE" not in environ and "ACCELERATE_MIXED_PRECISION" in environ:
        raise LaunchError("launch", [f"several processes were asked for, accelerate started one; {CPU_PROCESSES}"])


def _use_all_cores(accelerator: Accelerator) -> None:
    """`accelerate launch` sets OMP_NUM_THREADS=1 for good multi-GPU habits; on a CPU that idles the other cores."""
    import torch

    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    share = max(1, len(os.sched_getaffinity(0)) // local) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if os.environ.get("OMP_NUM_THREADS") == "1" and "ACCELERATE_MIXED_PRECISION" in os.environ and share > 1:
        torch.set_num_threads(share)
        log.info("%d threads; accelerate launch had left one", share)
