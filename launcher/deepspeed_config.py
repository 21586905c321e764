"""DeepSpeed's configuration with every number resolved: from the plan, or a person's own where the plan has no word."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.sources import SourceError, resolve

if TYPE_CHECKING:
    from launcher.recipe import Recipe, Training
    from launcher.settings import Settings

# Elements. DeepSpeed's own 5e8 are 2 GB of float32 for each bucket; these 16 MiB are near DDP's 25.
BUCKET = 1 << 22
LIVE = 1 << 24  # of gathered weights beyond those in use
GROUP = 1 << 26  # that the optimizer steps over at once
PERSISTENT = 10_000  # smaller weights stay whole everywhere
NEVER = 1 << 40  # in steps per print

Config = dict[str, Any]


def deepspeed_config(recipe: Recipe, settings: Settings, processes: int) -> tuple[Config, list[str]]:
    """What DeepSpeed gets, and what a person's own file says against the recipe, each with both values."""
    ours = _resolved(recipe.training, settings, processes)
    source = settings.form_options["config"]
    if source is None:
        return ours, []
    try:
        own = _read_own(source, recipe.base)
    except SourceError as error:
        return ours, [str(error)]
    problems: list[str] = []
    merged = _merged(ours, own, "", _said(recipe.training, settings, processes), problems)
    return merged, problems


def stated_steps(training: Training, settings: Settings, processes: int) -> int | None:
    """Micro-batches that each process runs per update by the recipe's word; None: each update has its own number."""
    if settings.micro_batch_tokens is not None:
        return None
    if settings.micro_batch_examples is not None:
        return math.ceil(training.batch_size / (settings.micro_batch_examples * processes))
    return settings.accumulation_steps or 1


def own_path(source: str, base: Path) -> Path:
    """SourceError where the file that strategies.zero.config names is not there."""
    kind, place = resolve(source, base)
    if kind == "hub":
        raise SourceError(f"{source!r} is not there (looked in {base})")
    return Path(place)


def _resolved(training: Training, settings: Settings, processes: int) -> Config:
    micro_batch = math.ceil(training.batch_size / processes)
    return {
        "zero_optimization": _zero(settings.form_options),
        # Formal: DeepSpeed wants a product that comes out even. The launcher cuts its own micro-batches and says
        # itself when an update is complete.
        "train_micro_batch_size_per_gpu": micro_batch,
        "train_batch_size": micro_batch * processes,
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,
        "gradient_clipping": training.max_grad_norm or 0.0,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": False},
        "fp16": {"enabled": False},
        "torch_autocast": _autocast(settings.precision),
        "steps_per_print": NEVER,
    }


def _said(training: Training, settings: Settings, processes: int) -> Config:
    """What the recipe itself says of DeepSpeed's formal numbers, and what an absent one means."""
    steps = stated_steps(training, settings, processes)
    said: Config = {
        "train_batch_size": training.batch_size,
        "zero_optimization.offload_optimizer.device": "none",
        "zero_optimization.offload_param.device": "none",
    }
    if steps is not None:
        said["gradient_accumulation_steps"] = steps
        said["train_micro_batch_size_per_gpu"] = math.ceil(training.batch_size / (processes * steps))
    return said


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


def _read_own(source: str, base: Path) -> Config:
    """SourceError where it is no JSON object."""
    path = own_path(source, base)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SourceError(f"{source!r} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise SourceError(f"{source!r} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise SourceError(f"{source!r} is not a JSON object")
    return content


# What follows from the recipe, by the key that says it there; all else a person may set.
STATED = {
    "zero_optimization.stage": "strategies.zero.stage",
    "zero_optimization.offload_optimizer.device": "strategies.zero.offload",
    "zero_optimization.offload_param.device": "strategies.zero.offload",
    "train_batch_size": "training.batch_size",
    "train_micro_batch_size_per_gpu": "training.batch_size, strategies.gradient_accumulation",
    "gradient_accumulation_steps": "strategies.gradient_accumulation",
    "managed_gradient_accumulation": "the launcher cuts micro-batches itself",
    "gradient_clipping": "training.max_grad_norm",
    "zero_force_ds_cpu_optimizer": "the recipe's own optimizer trains",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save": "models are saved whole",
    "bf16.enabled": "strategies.mixed_precision computes in half precision and keeps float32 weights",
    "fp16.enabled": "strategies.mixed_precision computes in half precision and keeps float32 weights",
    "torch_autocast.enabled": "strategies.mixed_precision",
    "torch_autocast.dtype": "strategies.mixed_precision",
}
ELSEWHERE = {
    "optimizer": "the recipe chooses it by strategies",
    "scheduler": "training.schedule says it",
}


def _merged(ours: Config, own: Config, prefix: str, said: Config, problems: list[str]) -> Config:
    """A person's file over what the launcher would choose; where the recipe has another word, that is a problem."""
    merged = dict(ours)
    for key, value in own.items():
        name = prefix + key
        if value == "auto":
            continue
        if name in ELSEWHERE:
            problems.append(f"{name}: leave it out: {ELSEWHERE[name]}")
        elif isinstance(value, dict):
            base = ours.get(key, {})
            merged[key] = _merged(base if isinstance(base, dict) else {}, value, f"{name}.", said, problems)
        elif isinstance(ours.get(key), dict):
            problems.append(f"{name} is {value!r} here, not a mapping")
        elif name in STATED:
            agreed = [word for word in (said.get(name), ours.get(key)) if word is not None]
            if agreed and value not in agreed:
                problems.append(f"{name} is {value!r} here, and {agreed[0]!r} by the recipe ({STATED[name]})")
            merged.setdefault(key, value)
        else:
            merged[key] = value
    return merged
