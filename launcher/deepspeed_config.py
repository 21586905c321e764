"""DeepSpeed's configuration with every number resolved: from the plan, or a person's own where the plan has no word."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.errors import RecipeError

if TYPE_CHECKING:
    from launcher.plan import Plan

# Elements. DeepSpeed's own 5e8 are 2 GB of float32 for each bucket; these 16 MiB are near DDP's 25.
BUCKET = 1 << 22
LIVE = 1 << 24  # of gathered weights beyond those in use
GROUP = 1 << 26  # that the optimizer steps over at once
PERSISTENT = 10_000  # smaller weights stay whole everywhere
NEVER = 1 << 40  # in steps per print

Config = dict[str, Any]


def deepspeed_config(plan: Plan) -> Config:
    """RecipeError where a person's own file contradicts the recipe, with both values."""
    ours = _resolved(plan)
    path = plan.settings.form_options.get("config")
    if path is None:
        return ours
    return with_own(ours, read_own(plan.recipe.base / str(path)), str(path))


def _resolved(plan: Plan) -> Config:
    options, training = plan.settings.form_options, plan.recipe.training
    micro_batch = math.ceil(training.batch_size / plan.processes)
    return {
        "zero_optimization": _zero(options),
        # Formal: DeepSpeed wants a product that comes out even. The launcher cuts its own micro-batches and says
        # itself when an update is complete.
        "train_micro_batch_size_per_gpu": micro_batch,
        "train_batch_size": micro_batch * plan.processes,
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,
        "gradient_clipping": training.max_grad_norm or 0.0,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": False},
        "fp16": {"enabled": False},
        "torch_autocast": _autocast(plan.settings.precision),
        "steps_per_print": NEVER,
    }


def _zero(options: dict[str, Any]) -> Config:
    stage, offload, nvme = options["stage"], options["offload"], options["nvme"]
    zero: Config = {
        "stage": stage,
        "contiguous_gradients": True,
        "overlap_comm": False,
        "reduce_scatter": True,
        "reduce_bucket_size": BUCKET,
        "allgather_partitions": True,
        "allgather_bucket_size": BUCKET,
    }
    place: Config = {"device": "cpu", "pin_memory": False}
    if nvme is not None:
        place = {"device": "nvme", "nvme_path": str(nvme), "buffer_count": 5, "pin_memory": False}
    if offload is not None:
        zero["offload_optimizer"] = place
    if offload == "parameters":
        zero["offload_param"] = dict(place)
    if stage == 3:
        zero |= {
            "stage3_prefetch_bucket_size": BUCKET,
            "stage3_param_persistence_threshold": PERSISTENT,
            "stage3_max_live_parameters": LIVE,
            "stage3_max_reuse_distance": LIVE,
            "stage3_gather_16bit_weights_on_model_save": True,
            "sub_group_size": GROUP,
        }
    return zero


def _autocast(precision: str) -> Config:
    if precision == "no":
        return {"enabled": False}
    # No module's gradients travel in half precision: DDP's do not either.
    dtype = {"bf16": "bfloat16", "fp16": "float16"}[precision]
    return {"enabled": True, "dtype": dtype, "lower_precision_safe_modules": []}


def read_own(path: Path) -> Config:
    """RecipeError where it is no JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecipeError(str(path), [f"strategies.zero.config: {error}"]) from None
    if not isinstance(content, dict):
        raise RecipeError(str(path), ["strategies.zero.config: not a JSON object"])
    return content


def with_own(ours: Config, own: Config, name: str) -> Config:
    """A person's file over what the launcher would choose; RecipeError where the recipe has another word."""
    problems: list[str] = []
    merged = _merged(ours, own, "", problems)
    if problems:
        raise RecipeError(name, problems)
    return merged


# What follows from the recipe, by the key that says it there; all else a person may set.
STATED = {
    "zero_optimization.stage": "strategies.zero.stage",
    "zero_optimization.offload_optimizer.device": "strategies.zero.offload",
    "zero_optimization.offload_param.device": "strategies.zero.offload",
    "train_batch_size": "training.batch_size",
    "train_micro_batch_size_per_gpu": "training.batch_size",
    "gradient_accumulation_steps": "the launcher cuts micro-batches itself",
    "managed_gradient_accumulation": "the launcher cuts micro-batches itself",
    "gradient_clipping": "training.max_grad_norm",
    "zero_force_ds_cpu_optimizer": "the recipe's own optimizer trains",
    "bf16.enabled": "strategies.mixed_precision",
    "fp16.enabled": "strategies.mixed_precision",
    "torch_autocast.enabled": "strategies.mixed_precision",
    "torch_autocast.dtype": "strategies.mixed_precision",
}
ELSEWHERE = {
    "optimizer": "the recipe chooses it by strategies",
    "scheduler": "training.schedule says it",
}


def _merged(ours: Config, own: Config, prefix: str, problems: list[str]) -> Config:
    merged = dict(ours)
    for key, value in own.items():
        name = prefix + key
        if value == "auto":
            continue
        if name in ELSEWHERE:
            problems.append(f"{name}: leave it out: {ELSEWHERE[name]}")
        elif isinstance(value, dict):
            base = ours.get(key, {})
            merged[key] = _merged(base if isinstance(base, dict) else {}, value, f"{name}.", problems)
        elif name in STATED and value != ours.get(key, _ABSENT.get(name)):
            there = ours.get(key, _ABSENT.get(name))
            problems.append(f"{name} is {value!r} here, and {there!r} by the recipe ({STATED[name]})")
        else:
            merged[key] = value
    return merged


_ABSENT = {"zero_optimization.offload_optimizer.device": "none", "zero_optimization.offload_param.device": "none"}
