"""What Accelerate's configuration says beside what the recipe says: where they differ, neither wins in silence.

`accelerate launch` hands its YAML and its flags to the processes as variables of the environment (Accelerate 1.15,
utils/launch.py). Some it exports whatever a person said: such a default contradicts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from launcher.deepspeed_config import own_path, stated_steps

if TYPE_CHECKING:
    from launcher.plan import Plan

_FORMS = {"ACCELERATE_USE_DEEPSPEED": ("zero", "DeepSpeed"), "ACCELERATE_USE_FSDP": ("fsdp", "FSDP")}
# What the plan's own plugins would read beside what they are given, or be refused for.
_SETTLED = ("ACCELERATE_DEEPSPEED_", "ACCELERATE_GRADIENT_", "ACCELERATE_DYNAMO_", "FSDP_")
_SETTLED_ALONE = ("ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP", "ACCELERATE_CONFIG_DS_FIELDS")
# Stays: the model's layers are known once it is loaded.
_LAYER_CLASSES = "FSDP_TRANSFORMER_CLS_TO_WRAP"

# Variable, its name in the YAML, what the launcher does, why.
_IDLE = (
    ("ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL", "zero3_save_16bit_model", "true", "models are saved whole"),
    ("FSDP_STATE_DICT_TYPE", "fsdp_state_dict_type", "FULL_STATE_DICT", "models are saved whole"),
    ("FSDP_CPU_RAM_EFFICIENT_LOADING", "fsdp_cpu_ram_efficient_loading", "true", "one process reads the weights"),
    ("FSDP_FORWARD_PREFETCH", "fsdp_forward_prefetch", "false", "FSDP2 gathers in its own order"),
    ("FSDP_BACKWARD_PREFETCH", "fsdp_backward_prefetch", "BACKWARD_PRE", "FSDP2 gathers in its own order"),
)


class Word(NamedTuple):
    """One thing that both may say.

    `name` is Accelerate's flag and YAML key, `ours` the plan's values for it with the one to show first, `key` where
    the recipe says it, empty where it has no word for it. `default` is exported where nobody said anything.
    """

    variable: str
    name: str
    ours: tuple[str, ...]
    key: str = ""
    default: str | None = None


def contradictions(environ: Mapping[str, str], plan: Plan) -> list[str]:
    """What the environment says against the plan, each with both values."""
    form = _form_problem(environ, plan)
    if form is not None:
        return [form]  # the rest would be about something that is not there
    problems = [_against(word, environ[word.variable]) for word in words(plan) if word.variable in environ]
    return [problem for problem in [*problems, _config_file(environ, plan)] if problem is not None]


def without_effect(environ: Mapping[str, str]) -> list[str]:
    """What is said there of things that the recipe has no word for, and that change neither training nor its form."""
    found = [(name, environ[variable], *rest) for variable, name, *rest in _IDLE if variable in environ]
    return [
        f"{name}: {value} has no effect: {why}" for name, value, ours, why in found if _plain(value) != _plain(ours)
    ]


def settle(environ: MutableMapping[str, str]) -> None:
    """Takes out what agrees: Accelerate refuses a plugin given in code beside the same words in its YAML (1.15)."""
    for name in list(environ):
        if name in _SETTLED_ALONE or (name.startswith(_SETTLED) and name != _LAYER_CLASSES):
            del environ[name]


def layer_contradictions(environ: Mapping[str, str], layers: Sequence[str]) -> list[str]:
    """What the environment says against the classes that the model's layers are of."""
    theirs = environ.get(_LAYER_CLASSES)
    if theirs is None or {name.strip() for name in theirs.split(",")} == set(layers):
        return []
    problem = f"fsdp_transformer_layer_cls_to_wrap is {theirs} by accelerate's configuration"
    return [f"{problem}, the layers of this model are {', '.join(layers)}"]


def words(plan: Plan) -> list[Word]:
    """All that a configuration may say of this plan's form."""
    settings, training = plan.settings, plan.recipe.training
    steps = stated_steps(training, settings, plan.processes)
    clip = ("none", "0") if training.max_grad_norm is None else (str(training.max_grad_norm),)
    found = [
        Word("ACCELERATE_MIXED_PRECISION", "mixed_precision", (settings.precision,), "mixed_precision.precision", "no"),
        Word(
            "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
            "gradient_accumulation_steps",
            ("as many as each update's texts need" if steps is None else str(steps),),
            "gradient_accumulation",
        ),
        Word("ACCELERATE_GRADIENT_CLIPPING", "gradient_clipping", clip, "training.max_grad_norm"),
        Word("ACCELERATE_DYNAMO_BACKEND", "dynamo_backend", ("no",)),
        Word("ACCELERATE_USE_MEGATRON_LM", "use_megatron_lm", ("false",)),
        Word("ACCELERATE_USE_PARALLELISM_CONFIG", "use_parallelism_config", ("false",)),
    ]
    if settings.form == "zero":
        found += _zero_words(plan)
    if settings.form == "fsdp":
        found += _fsdp_words(plan)
    return found


def _zero_words(plan: Plan) -> list[Word]:
    options = plan.settings.form_options
    place = "cpu" if options["nvme"] is None else "nvme"
    optimizer = place if options["offload"] is not None else "none"
    parameters = place if options["offload"] == "parameters" else "none"
    prefix = "ACCELERATE_DEEPSPEED_"
    found = [
        Word(f"{prefix}ZERO_STAGE", "zero_stage", (str(options["stage"]),), "zero.stage"),
        Word(f"{prefix}OFFLOAD_OPTIMIZER_DEVICE", "offload_optimizer_device", (optimizer,), "zero.offload"),
        Word(f"{prefix}OFFLOAD_PARAM_DEVICE", "offload_param_device", (parameters,), "zero.offload"),
        Word(f"{prefix}MOE_LAYER_CLS_NAMES", "deepspeed_moe_layer_cls_names", ("none",)),
    ]
    if options["stage"] == 3:  # below it means nothing, and `accelerate config` writes false
        found.append(Word(f"{prefix}ZERO3_INIT", "zero3_init_flag", ("true",), "zero.stage"))
    return found


def _fsdp_words(plan: Plan) -> list[Word]:
    options = plan.settings.form_options
    reshard, offload = str(options["reshard"]).lower(), str(options["offload"]).lower()
    is_checkpointed = any(strategy.key == "gradient_checkpointing" for strategy in plan.strategies)
    sharding = ("FULL_SHARD", "1") if options["reshard"] else ("SHARD_GRAD_OP", "2")
    return [
        Word("FSDP_VERSION", "fsdp_version", ("2",), "fsdp"),
        Word("FSDP_SHARDING_STRATEGY", "fsdp_sharding_strategy", sharding, "fsdp.reshard", "FULL_SHARD"),
        Word("FSDP_RESHARD_AFTER_FORWARD", "fsdp_reshard_after_forward", (reshard,), "fsdp.reshard", "true"),
        Word("FSDP_OFFLOAD_PARAMS", "fsdp_offload_params", (offload,), "fsdp.offload", "false"),
        Word("FSDP_AUTO_WRAP_POLICY", "fsdp_auto_wrap_policy", ("TRANSFORMER_BASED_WRAP",), "fsdp"),
        Word(
            "FSDP_ACTIVATION_CHECKPOINTING",
            "fsdp_activation_checkpointing",
            (str(is_checkpointed).lower(),),
            "gradient_checkpointing",
            "false",
        ),
        Word("FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD", "fsdp_activation_checkpointing_offload", ("false",)),
        Word("FSDP_IGNORED_MODULES", "fsdp_ignored_modules", ("none",)),
    ]


def _form_problem(environ: Mapping[str, str], plan: Plan) -> str | None:
    for variable, (key, name) in _FORMS.items():
        if says(environ, variable) and plan.settings.form != key:
            ours = plan.settings.form.upper()
            problem = f"accelerate's configuration says {name}, the recipe {ours}"
            return f"{problem}; write strategies.{key}, or take another configuration"
    return None


def _against(word: Word, value: str) -> str | None:
    if _plain(value) in {_plain(ours) for ours in (*word.ours, word.default, "auto") if ours is not None}:
        return None
    if not word.key:
        return (
            f"{word.name} is {value} by accelerate's configuration; the recipe has no word for it, leave it out there"
        )
    key = word.key if word.key.startswith("training.") else f"strategies.{word.key}"
    return f"{word.name} is {value} by accelerate's configuration, and {word.ours[0]} by the recipe ({key})"


def _plain(value: str) -> str | float:
    """1.0 and 1 are the same word, and so are FALSE and false."""
    try:
        return float(value)
    except ValueError:
        return value.strip().lower()


def _config_file(environ: Mapping[str, str], plan: Plan) -> str | None:
    theirs = environ.get("ACCELERATE_DEEPSPEED_CONFIG_FILE", "none")
    if theirs == "none":
        return None
    ours = plan.settings.form_options.get("config")
    if ours is not None and Path(theirs).resolve() == own_path(ours, plan.recipe.base):
        return None
    where = f"deepspeed_config_file is {theirs} by accelerate's configuration, and {ours or 'none'} by the recipe"
    return f"{where}; write strategies.zero.config: {theirs}"


def says(environ: Mapping[str, str], variable: str) -> bool:
    """Accelerate writes true, True and 1."""
    return environ.get(variable, "").lower() in ("true", "1")
