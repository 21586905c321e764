"""What Accelerate's configuration says against the recipe is told with both values; what agrees is taken out."""

from __future__ import annotations

import pytest

from launcher.check import check
from launcher.environment import contradictions, layer_contradictions, settle, without_effect
from launcher.plan import make_plan
from tests.accelerate_exports import exported

STEPS = {"gradient_accumulation": {"steps": 4}}
TOKENS = {"gradient_accumulation": {"tokens": 200}}
BF16 = {"mixed_precision": {"precision": "bf16"}}
ZERO = {"zero": {"stage": 2}}
ZERO_3 = {"zero": {"stage": 3, "offload": "parameters"}}
FSDP = {"fsdp": {"offload": True}}
WHOLE = {"fsdp": {"reshard": False}}
DEEPSPEED = "ACCELERATE_DEEPSPEED_"
SAYS = "by accelerate's configuration"
NO_WORD = "the recipe has no word for it, leave it out there"
# The recipe's strategies, a variable, and values: those that agree, one that does not, and what is said of it.
TABLE = {
    "precision": (
        BF16,
        "ACCELERATE_MIXED_PRECISION",
        ["bf16", "no"],
        "fp16",
        f"mixed_precision is fp16 {SAYS}, and bf16 by the recipe (strategies.mixed_precision.precision)",
    ),
    "no_precision": (
        {},
        "ACCELERATE_MIXED_PRECISION",
        ["no"],
        "bf16",
        f"mixed_precision is bf16 {SAYS}, and no by the recipe (strategies.mixed_precision.precision)",
    ),
    "steps": (
        STEPS,
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
        ["4", "auto"],
        "1",
        f"gradient_accumulation_steps is 1 {SAYS}, and 4 by the recipe (strategies.gradient_accumulation)",
    ),
    "micro_batch": (
        {"gradient_accumulation": {"micro_batch": 3}},
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
        ["4"],
        "8",
        f"gradient_accumulation_steps is 8 {SAYS}, and 4 by the recipe (strategies.gradient_accumulation)",
    ),
    "no_steps": (
        {},
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
        ["1"],
        "2",
        f"gradient_accumulation_steps is 2 {SAYS}, and 1 by the recipe (strategies.gradient_accumulation)",
    ),
    "tokens": (
        TOKENS,
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
        ["auto"],
        "2",
        f"gradient_accumulation_steps is 2 {SAYS}, and as many as each update's texts need by the recipe"
        " (strategies.gradient_accumulation)",
    ),
    "clipping": (
        {},
        "ACCELERATE_GRADIENT_CLIPPING",
        ["1.0", "1", "auto"],
        "0.5",
        f"gradient_clipping is 0.5 {SAYS}, and 1.0 by the recipe (training.max_grad_norm)",
    ),
    "dynamo": (
        {},
        "ACCELERATE_DYNAMO_BACKEND",
        ["NO"],
        "INDUCTOR",
        f"dynamo_backend is INDUCTOR {SAYS}; {NO_WORD}",
    ),
    "megatron": ({}, "ACCELERATE_USE_MEGATRON_LM", ["false"], "true", f"use_megatron_lm is true {SAYS}; {NO_WORD}"),
    "parallelism": (
        {},
        "ACCELERATE_USE_PARALLELISM_CONFIG",
        ["false"],
        "true",
        f"use_parallelism_config is true {SAYS}; {NO_WORD}",
    ),
    "deepspeed": (
        ZERO,
        "ACCELERATE_USE_FSDP",
        ["false"],
        "true",
        "accelerate's configuration says FSDP, the recipe ZERO; write strategies.fsdp, or take another configuration",
    ),
    "fsdp": (
        FSDP,
        "ACCELERATE_USE_DEEPSPEED",
        ["false"],
        "true",
        "accelerate's configuration says DeepSpeed, the recipe FSDP; write strategies.zero, or take another"
        " configuration",
    ),
    "stage": (
        ZERO,
        f"{DEEPSPEED}ZERO_STAGE",
        ["2"],
        "3",
        f"zero_stage is 3 {SAYS}, and 2 by the recipe (strategies.zero.stage)",
    ),
    "optimizer_device": (
        ZERO,
        f"{DEEPSPEED}OFFLOAD_OPTIMIZER_DEVICE",
        ["none"],
        "cpu",
        f"offload_optimizer_device is cpu {SAYS}, and none by the recipe (strategies.zero.offload)",
    ),
    "optimizer_device_of_an_offload": (
        ZERO_3,
        f"{DEEPSPEED}OFFLOAD_OPTIMIZER_DEVICE",
        ["cpu"],
        "none",
        f"offload_optimizer_device is none {SAYS}, and cpu by the recipe (strategies.zero.offload)",
    ),
    "parameter_device": (
        ZERO_3,
        f"{DEEPSPEED}OFFLOAD_PARAM_DEVICE",
        ["cpu"],
        "nvme",
        f"offload_param_device is nvme {SAYS}, and cpu by the recipe (strategies.zero.offload)",
    ),
    "zero3_init": (
        ZERO_3,
        f"{DEEPSPEED}ZERO3_INIT",
        ["true"],
        "false",
        f"zero3_init_flag is false {SAYS}, and true by the recipe (strategies.zero.stage)",
    ),
    "experts": (
        ZERO_3,
        f"{DEEPSPEED}MOE_LAYER_CLS_NAMES",
        [],
        "MixtralSparseMoeBlock",
        f"deepspeed_moe_layer_cls_names is MixtralSparseMoeBlock {SAYS}; {NO_WORD}",
    ),
    "config_file": (
        ZERO,
        f"{DEEPSPEED}CONFIG_FILE",
        ["none"],
        "ds.json",
        f"deepspeed_config_file is ds.json {SAYS}, and none by the recipe; write strategies.zero.config: ds.json",
    ),
    "version": (FSDP, "FSDP_VERSION", ["2"], "1", f"fsdp_version is 1 {SAYS}, and 2 by the recipe (strategies.fsdp)"),
    "sharding": (
        FSDP,
        "FSDP_SHARDING_STRATEGY",
        ["FULL_SHARD", "1"],
        "SHARD_GRAD_OP",
        f"fsdp_sharding_strategy is SHARD_GRAD_OP {SAYS}, and FULL_SHARD by the recipe (strategies.fsdp.reshard)",
    ),
    "reshard": (
        FSDP,
        "FSDP_RESHARD_AFTER_FORWARD",
        ["true"],
        "false",
        f"fsdp_reshard_after_forward is false {SAYS}, and true by the recipe (strategies.fsdp.reshard)",
    ),
    "no_reshard": (
        WHOLE,
        "FSDP_SHARDING_STRATEGY",
        ["SHARD_GRAD_OP", "2", "FULL_SHARD"],
        "NO_SHARD",
        f"fsdp_sharding_strategy is NO_SHARD {SAYS}, and SHARD_GRAD_OP by the recipe (strategies.fsdp.reshard)",
    ),
    "fsdp_offload": (
        WHOLE,
        "FSDP_OFFLOAD_PARAMS",
        ["false"],
        "true",
        f"fsdp_offload_params is true {SAYS}, and false by the recipe (strategies.fsdp.offload)",
    ),
    "wrap": (
        FSDP,
        "FSDP_AUTO_WRAP_POLICY",
        ["TRANSFORMER_BASED_WRAP"],
        "SIZE_BASED_WRAP",
        f"fsdp_auto_wrap_policy is SIZE_BASED_WRAP {SAYS}, and TRANSFORMER_BASED_WRAP by the recipe (strategies.fsdp)",
    ),
    "checkpointing": (
        FSDP,
        "FSDP_ACTIVATION_CHECKPOINTING",
        ["false"],
        "true",
        f"fsdp_activation_checkpointing is true {SAYS}, and false by the recipe (strategies.gradient_checkpointing)",
    ),
    "checkpointed": (
        FSDP | {"gradient_checkpointing": True},
        "FSDP_ACTIVATION_CHECKPOINTING",
        ["true", "false"],
        "maybe",
        f"fsdp_activation_checkpointing is maybe {SAYS}, and true by the recipe (strategies.gradient_checkpointing)",
    ),
    "checkpoints_off_the_card": (
        FSDP,
        "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD",
        ["false"],
        "true",
        f"fsdp_activation_checkpointing_offload is true {SAYS}; {NO_WORD}",
    ),
    "ignored": (
        FSDP,
        "FSDP_IGNORED_MODULES",
        [],
        ".*pooler",
        f"fsdp_ignored_modules is .*pooler {SAYS}; {NO_WORD}",
    ),
}


@pytest.fixture
def plan(recipe):
    def make(strategies, **sections):
        off = {"uniform_dynamic_padding": False}
        return make_plan(check(recipe(strategies=off | strategies, **sections), processes=2))

    return make


@pytest.mark.parametrize("name", TABLE)
def test_what_agrees_is_accepted_and_what_contradicts_is_told_with_both_values(name, plan):
    strategies, variable, agreeing, other, said = TABLE[name]
    made = plan(strategies)
    assert [contradictions({variable: value}, made) for value in agreeing] == [[] for _ in agreeing]
    assert contradictions({variable: other}, made) == [said]


def test_a_recipe_that_does_not_clip_agrees_with_no_clipping_alone(plan):
    made = plan({}, training={"max_grad_norm": None})
    for value in ("none", "0.0", "0"):
        assert contradictions({"ACCELERATE_GRADIENT_CLIPPING": value}, made) == []
    assert len(contradictions({"ACCELERATE_GRADIENT_CLIPPING": "1.0"}, made)) == 1


def test_the_same_deepspeed_file_in_both_agrees(plan, tmp_path):
    (tmp_path / "ds.json").write_text("{}")
    made = plan({"zero": {"stage": 2, "config": "ds.json"}})  # from the recipe's folder
    assert contradictions({f"{DEEPSPEED}CONFIG_FILE": str(tmp_path / "ds.json")}, made) == []
    assert len(contradictions({f"{DEEPSPEED}CONFIG_FILE": str(tmp_path / "other.json")}, made)) == 1


def test_all_contradictions_are_told_at_once(plan):
    environ = {"ACCELERATE_MIXED_PRECISION": "bf16", f"{DEEPSPEED}ZERO_STAGE": "3"}
    assert len(contradictions(environ, plan(ZERO))) == 2


@pytest.mark.parametrize("strategies", [{}, ZERO, ZERO_3, FSDP, WHOLE, STEPS, TOKENS, BF16], ids=str)
def test_a_topology_alone_contradicts_nothing(strategies, plan, tmp_path):
    environ = exported(tmp_path)
    assert environ["ACCELERATE_MIXED_PRECISION"] == "no"
    assert contradictions(environ, plan(strategies)) == []
    assert without_effect(environ) == []


DEEPSPEED_YAML = {
    "zero_stage": 2,
    "gradient_accumulation_steps": 4,
    "gradient_clipping": 1.0,
    "offload_optimizer_device": "none",
    "offload_param_device": "none",
    "zero3_init_flag": False,
}
FSDP_YAML = {
    "fsdp_version": 2,
    "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_transformer_layer_cls_to_wrap": "BertLayer",
    "fsdp_reshard_after_forward": True,
    "fsdp_offload_params": True,
    "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    "fsdp_cpu_ram_efficient_loading": True,
    "fsdp_activation_checkpointing": False,
}


def test_a_deepspeed_configuration_that_agrees_is_taken_out_before_the_plugin_is_made(plan, tmp_path):
    agreeing = {"distributed_type": "DEEPSPEED", "mixed_precision": "bf16", "deepspeed_config": DEEPSPEED_YAML}
    environ = exported(tmp_path, **agreeing)
    assert "zero_stage" in environ["ACCELERATE_CONFIG_DS_FIELDS"]
    assert contradictions(environ, plan(ZERO | STEPS | BF16)) == []
    settle(environ)
    assert [name for name in environ if "DEEPSPEED" in name or "GRADIENT" in name or "FIELDS" in name] == []
    assert environ["ACCELERATE_MIXED_PRECISION"] == "bf16"


def test_a_deepspeed_configuration_that_differs_throughout_is_told_whole(plan, tmp_path):
    other = {"zero_stage": 3, "gradient_accumulation_steps": 2, "gradient_clipping": 0.1, "zero3_init_flag": True}
    other |= {"offload_optimizer_device": "cpu", "offload_param_device": "cpu", "zero3_save_16bit_model": False}
    environ = exported(tmp_path, distributed_type="DEEPSPEED", mixed_precision="bf16", deepspeed_config=other)
    told = [problem.split(" is ")[0] for problem in contradictions(environ, plan(ZERO | STEPS))]
    assert told == [
        "mixed_precision",
        "gradient_accumulation_steps",
        "gradient_clipping",
        "zero_stage",
        "offload_optimizer_device",
        "offload_param_device",
    ]
    assert without_effect(environ) == ["zero3_save_16bit_model: false has no effect: models are saved whole"]


def test_an_fsdp_configuration_that_agrees_is_taken_out_but_for_the_layers_which_the_model_decides(plan, tmp_path):
    environ = exported(tmp_path, distributed_type="FSDP", fsdp_config=FSDP_YAML)
    assert environ["ACCELERATE_USE_FSDP"] == "true"
    assert contradictions(environ, plan(FSDP)) == []
    said = ["fsdp_state_dict_type: SHARDED_STATE_DICT has no effect: models are saved whole"]
    assert without_effect(environ) == said
    settle(environ)
    assert [name for name in environ if "FSDP" in name] == ["FSDP_TRANSFORMER_CLS_TO_WRAP"]


def test_layers_that_are_not_the_models_are_told():
    layers = ["T5Block", "T5LayerSelfAttention"]
    agreeing = {"FSDP_TRANSFORMER_CLS_TO_WRAP": "T5LayerSelfAttention, T5Block"}
    assert layer_contradictions({}, layers) == layer_contradictions(agreeing, layers) == []
    assert layer_contradictions({"FSDP_TRANSFORMER_CLS_TO_WRAP": "BertLayer"}, layers) == [
        f"fsdp_transformer_layer_cls_to_wrap is BertLayer {SAYS},"
        " the layers of this model are T5Block, T5LayerSelfAttention"
    ]


def test_the_first_version_of_fsdp_is_refused(plan, tmp_path):
    environ = exported(tmp_path, distributed_type="FSDP", fsdp_config={"fsdp_offload_params": True})
    assert [problem.split(" is ")[0] for problem in contradictions(environ, plan(FSDP))] == ["fsdp_version"]


def test_a_compiler_in_the_configuration_is_refused(plan, tmp_path):
    environ = exported(tmp_path, dynamo_config={"dynamo_backend": "INDUCTOR"})
    assert contradictions(environ, plan({})) == [TABLE["dynamo"][-1]]
