"""The processes that train together: started rightly, or stopped with the reason before the first update."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from launcher.environment import contradictions, says, settle, without_effect
from launcher.errors import LaunchError
from launcher.forms.base import CPU_PROCESSES, apart
from launcher.machine import started_here, started_processes, started_rank
from launcher.units import count

if TYPE_CHECKING:
    from accelerate import Accelerator

    from launcher.forms import Form
    from launcher.plan import Plan
    from launcher.settings import Precision

log = logging.getLogger(__name__)


def start_form(plan: Plan, precision: Precision | None = None) -> Form:
    """The plan's form, its processes met; `precision` is the plan's own where none is given.

    LaunchError as by check_start, and where each of several processes would train a model of its own.
    """
    import torch
    from accelerate import DistributedType

    from launcher.forms import make_form

    check_start(plan)
    form, started = make_form(plan), started_processes()
    if not torch.cuda.device_count():
        # DeepSpeed, which Accelerate asks whether a model is one of its engines, would look for a card and warn.
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    accelerator = form.start(precision or plan.settings.precision)
    if accelerator.num_processes != started:
        raise LaunchError("launch", [f"{started} processes were started, each sees {accelerator.num_processes}"])
    if started > 1 and accelerator.distributed_type == DistributedType.NO:
        raise apart(accelerator)  # known before anything is loaded
    if accelerator.device.type == "cpu":
        _use_all_cores(accelerator)
    return form


def check_start(plan: Plan) -> None:
    """What can be known before anything is read: LaunchError where Accelerate's configuration contradicts the plan, or
    the processes that were started cannot train together. What agrees is taken out of the environment.
    """
    import torch

    from launcher.forms import make_form

    gpus = torch.cuda.device_count()
    problems = [*contradictions(os.environ, plan), *world_problems(os.environ, gpus, make_form(plan).key)]
    if problems:
        raise LaunchError("launch", problems)
    if started_rank() == 0:
        for note in without_effect(os.environ):
            log.warning("%s", note)
    settle(os.environ)


def world_problems(environ: Mapping[str, str], gpus: int, form: str) -> list[str]:
    """What is wrong with the processes that were started, as far as the environment shows it on a machine of `gpus`."""
    # Accelerate's simple launcher, which serves CPUs and single GPUs, starts one process whatever number it was given,
    # and says nothing (1.15): it exports an address to meet at, and no world to meet in.
    if "MASTER_ADDR" in environ and "WORLD_SIZE" not in environ and "ACCELERATE_MIXED_PRECISION" in environ:
        problem = "several processes were asked for (MASTER_ADDR is set), accelerate started one"
        return [f"{problem}; {CPU_PROCESSES}, for GPUs add --multi_gpu"]
    started, here = started_processes(environ), started_here(environ)
    on_cpu = says(environ, "ACCELERATE_USE_CPU")
    if started > 1 and not gpus and not on_cpu and not _hides_gpus(environ):
        return [f"{started} processes were started for GPUs, and torch sees none here; {CPU_PROCESSES}"]
    if gpus and on_cpu and form != "ddp":
        return [f"accelerate's configuration says CPU, strategies.{form} would train on the GPUs here; leave one out"]
    if gpus and not on_cpu and here > gpus:
        problem = f"{here} processes were started on this machine, torch sees {count(gpus, 'GPU')}"
        return [f"{problem}; num_processes is the number over all machines"]
    return []


def _hides_gpus(environ: Mapping[str, str]) -> bool:
    """Whether a person has said that no GPU takes part, as accelerate_configs/cpu.yaml does by gpu_ids."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    return visible is not None and (visible == "" or visible.startswith("-1"))


def _use_all_cores(accelerator: Accelerator) -> None:
    """`accelerate launch` sets OMP_NUM_THREADS=1 for good multi-GPU habits; on a CPU that idles the other cores."""
    import torch

    share = (
        max(1, len(os.sched_getaffinity(0)) // started_here())
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )
    if os.environ.get("OMP_NUM_THREADS") == "1" and "ACCELERATE_MIXED_PRECISION" in os.environ and share > 1:
        torch.set_num_threads(share)
        log.info("%d threads; accelerate launch had left one", share)
