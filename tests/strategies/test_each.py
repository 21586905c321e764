"""What each strategy does by itself, beyond what all promise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import yaml

from launcher import devices
from launcher.check import check
from launcher.errors import RecipeError
from launcher.job import Job
from launcher.plan import make_plan
from launcher.strategies import ALL
from launcher.strategies.mixed_precision import MixedPrecision
from launcher.strategies.optimizer_offload import OptimizerOffload

OFF = {"uniform_dynamic_padding": False, "fast_tokenizer": False}
CPU = devices.CPU
GTX_1650 = devices.this_card("NVIDIA GeForce GTX 1650", 2**32, (7, 5))
T4 = devices.this_card("Tesla T4", 2**34, (7, 5))
A100 = devices.this_card("NVIDIA A100-SXM4-40GB", 40 * 2**30, (8, 0))


def step(session):
    from launcher.train import train_update

    session.set_train_mode()
    return train_update(session, session.cutter.cut(np.arange(24)))


def inner(session):
    return session.accelerator.unwrap_model(session.model)


# Gradient accumulation


@pytest.mark.parametrize("setting", [{"steps": 4}, {"micro_batch": 6}])
def test_micro_batch_times_steps_is_the_batch_size(build, setting):
    session = build(strategies=OFF | {"gradient_accumulation": setting})
    update = session.cutter.cut(np.arange(24))
    assert [len(m.examples) for m in update.micro_batches] == [6, 6, 6, 6]


def test_one_micro_batch_for_the_whole_update_is_said_to_have_no_effect(recipe):
    plan = make_plan(check(recipe(strategies=OFF | {"gradient_accumulation": {"micro_batch": 24}})))
    assert plan.reasons == ("gradient_accumulation: no effect: one micro-batch holds the whole update",)


@pytest.mark.parametrize(("tokens", "said"), [(24 * 42, True), (24 * 42 - 1, False)])
def test_a_token_limit_that_never_cuts_is_said_to_have_no_effect(build, tokens, said, caplog):
    with caplog.at_level("INFO", logger="launcher"):
        session = build(strategies=OFF | {"dynamic_padding": True, "gradient_accumulation": {"tokens": tokens}})
    assert session.examples.lengths.used.max() == 42
    text = "gradient_accumulation: no effect: the longest texts of a whole update fit into one micro-batch"
    assert (text in caplog.messages) == said


# Freezing


def test_frozen_parameters_get_neither_gradient_nor_state_and_their_dropout_is_off(build):
    freezing = {"embeddings": True, "first_layers": 1, "patterns": ["*pooler*"]}
    session = build(strategies=OFF | {"freezing": freezing}, model={"config": {"hidden_dropout_prob": 0.5}})
    step(session)
    model = inner(session)
    frozen = [n for n, _ in model.named_parameters() if "embeddings" in n or "layer.0." in n or "pooler" in n]
    assert [n for n, p in model.named_parameters() if not p.requires_grad] == frozen
    assert all(dict(model.named_parameters())[n].grad is None for n in frozen)
    trained = sum(1 for p in model.parameters() if p.requires_grad)
    assert len(session.optimizer.state_dict()["state"]) == trained
    session.set_train_mode()
    assert not model.bert.embeddings.dropout.training
    assert not model.bert.encoder.layer[0].output.dropout.training
    assert model.bert.encoder.layer[1].output.dropout.training
    assert model.dropout.training


@pytest.mark.parametrize(
    ("freezing", "message"),
    [
        ({"patterns": ["*"]}, "freezes every parameter"),
        ({"patterns": ["*attn*"]}, "'*attn*' matches none of bert.embeddings.word_embeddings.weight,"),
    ],
)
def test_freezing_everything_or_nothing_is_an_error(build, freezing, message):
    with pytest.raises(RecipeError, match=message.replace("*", r"\*")):
        build(strategies=OFF | {"freezing": freezing})


def test_freezing_more_layers_than_there_are_is_found_by_check(recipe):
    with pytest.raises(RecipeError, match="first_layers: 3 is more than the model's 2 layers"):
        check(recipe(strategies={"freezing": {"first_layers": 3}}))


# Mixed precision


@pytest.mark.parametrize(
    ("device", "bf16", "fp16"), [(CPU, True, False), (GTX_1650, False, False), (T4, False, True), (A100, True, True)]
)
def test_precision_is_refused_where_the_card_cannot_do_it(recipe, device, bf16, fp16):
    job = Job(check(recipe()).recipe, None, 1, device)
    assert (not MixedPrecision(precision="bf16").problems(job)) == bf16
    assert (not MixedPrecision(precision="fp16").problems(job)) == fp16


def test_bf16_computes_in_bf16_over_float32_weights(build):
    session = build(strategies=OFF | {"mixed_precision": {"precision": "bf16"}})
    seen = []
    inner(session).bert.encoder.layer[0].output.dense.register_forward_hook(lambda *a: seen.append(a[2].dtype))
    step(session)
    assert seen == [torch.bfloat16]
    assert {p.dtype for p in session.model.parameters()} == {torch.float32}


# 8-bit optimizer


def test_matrices_have_8_bit_states_and_embeddings_32_bit_ones(build, recipe):
    session = build(strategies=OFF | {"eight_bit_optimizer": True})
    step(session)
    states = session.optimizer.optimizer.state
    model = inner(session)
    assert states[model.bert.encoder.layer[0].intermediate.dense.weight]["state1"].dtype == torch.uint8
    assert states[model.bert.embeddings.word_embeddings.weight]["state1"].dtype == torch.float32


def test_large_embeddings_keep_32_bit_states_by_the_override_not_by_their_size(monkeypatch):
    import bitsandbytes

    from launcher.strategies.eight_bit_optimizer import EightBitOptimizer

    model = torch.nn.Sequential(torch.nn.Embedding(200, 64), torch.nn.Linear(64, 128))
    notes = EightBitOptimizer().change_model(model)
    optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())
    model(torch.arange(200)).sum().backward()
    optimizer.step()
    assert optimizer.state[model[0].weight]["state1"].dtype == torch.float32
    assert optimizer.state[model[1].weight]["state1"].dtype == torch.uint8
    assert notes == ["8-bit states for 38.8 % of the parameters"]
    assert EightBitOptimizer().change_model(model[0]) == [
        "no effect: no trained tensor but embeddings has 4,096 elements"
    ]


def test_paged_states_without_a_card_are_said_to_have_no_effect(recipe):
    plan = make_plan(check(recipe(strategies=OFF | {"eight_bit_optimizer": {"paged": True}})))
    assert plan.reasons == ("eight_bit_optimizer: paged has no effect: there is no card to page from",)


# Optimizer offload


def test_offloaded_states_train_the_same_weights(build):
    def trained(strategies):
        session = build(strategies=OFF | strategies, model={"config": {"hidden_dropout_prob": 0.1}})
        for _ in range(3):
            step(session)
        return session.optimizer.optimizer, list(session.model.parameters())

    optimizer, weights = trained({"optimizer_offload": True})
    assert type(optimizer).__name__ == "OffloadedAdamW"
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(weights, trained({})[1], strict=True))


def test_offloading_without_a_card_is_said_to_have_no_effect(recipe):
    path = recipe(strategies=OFF | {"optimizer_offload": True})
    assert make_plan(check(path)).reasons == (
        "optimizer_offload: no effect on memory: without a card there is nothing to take states off",
    )
    assert OptimizerOffload().notes(Job(check(path).recipe, None, 1, GTX_1650)) == []


# Gradient checkpointing


@pytest.mark.parametrize(("every", "first_layers", "calls"), [(1, 0, [2, 2]), (2, 0, [2, 1]), (1, 1, [1, 2])])
def test_checkpointed_layers_run_twice_and_frozen_ones_once(build, every, first_layers, calls):
    strategies = OFF | {"gradient_checkpointing": {"every_n_layers": every}}
    if first_layers:
        strategies["freezing"] = {"embeddings": True, "first_layers": first_layers}
    session = build(strategies=strategies)
    counts = [0, 0]
    for number, layer in enumerate(inner(session).bert.encoder.layer):

        def count(*_, number=number):
            counts[number] += 1

        layer.attention.self.register_forward_hook(count)
    step(session)
    assert counts == calls


# Adafactor


def test_adafactor_keeps_a_row_and_a_column_per_matrix(build):
    session = build(strategies=OFF | {"adafactor": True})
    step(session)
    state = session.optimizer.optimizer.state[inner(session).bert.encoder.layer[0].intermediate.dense.weight]
    assert {name: tuple(state[name].shape) for name in ("exp_avg_sq_row", "exp_avg_sq_col")} == {
        "exp_avg_sq_row": (128,),
        "exp_avg_sq_col": (64,),
    }


def test_own_rate_has_no_schedule_and_says_what_it_does_not_use(build, recipe):
    strategies = OFF | {"adafactor": {"preset": "own_rate"}}
    assert build(strategies=strategies).schedule is None
    plan = make_plan(check(recipe(strategies=strategies)))
    assert plan.reasons == ("adafactor: own_rate: training.learning_rate, schedule and warmup are not used",)


# Fast tokenizer


def test_a_model_with_only_a_slow_tokenizer_says_what_it_costs(build, tiny_model, tmp_path, caplog):
    from transformers import AutoConfig, CanineConfig, CanineModel, CanineTokenizer

    folder = tmp_path / "canine"
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    CanineModel(CanineConfig(**sizes, max_position_embeddings=256, num_hash_buckets=64)).save_pretrained(folder)
    CanineTokenizer(model_max_length=256).save_pretrained(folder)
    assert AutoConfig.from_pretrained(folder).model_type == "canine"
    with caplog.at_level("WARNING", logger="launcher"):
        build(
            model={"source": str(folder)},
            strategies={"uniform_dynamic_padding": True, "fast_tokenizer": True, "gradient_accumulation": {"steps": 2}},
        )
    assert any(text.startswith("fast_tokenizer: this model has only a slow one: ") for text in caplog.messages)


# Padding


def padded_tokens(session):
    update = session.cutter.cut(np.arange(24))
    return sum(len(m.examples) * session.cutter.padded_length(m.examples) for m in update.micro_batches)


def test_dynamic_padding_pads_less_than_fixed_and_uniform_less_than_dynamic(build):
    accumulation = OFF | {"gradient_accumulation": {"micro_batch": 4}}
    fixed = padded_tokens(build(strategies=accumulation))
    dynamic = padded_tokens(build(strategies=accumulation | {"dynamic_padding": True}))
    uniform = padded_tokens(build(strategies=accumulation | {"uniform_dynamic_padding": True}))
    used = int(build(strategies=accumulation).examples.lengths.used[:24].sum())
    assert used <= uniform < dynamic < fixed
    assert uniform - used < (dynamic - used) / 2


def test_padded_lengths_are_multiples(build):
    session = build(strategies=OFF | {"dynamic_padding": {"multiple_of": 8}, "gradient_accumulation": {"steps": 4}})
    lengths = {session.cutter.padded_length(m.examples) for m in session.cutter.cut(np.arange(24)).micro_batches}
    assert lengths <= {8, 16, 24, 32, 40, 48}


@pytest.mark.parametrize("key", ["dynamic_padding", "uniform_dynamic_padding"])
def test_padding_of_texts_of_one_length_is_said_to_have_no_effect(build, key, caplog, tmp_path):
    (tmp_path / "rows.csv").write_text("text,label\ngood room,1\nbad room,0\n", encoding="utf-8")
    with caplog.at_level("INFO", logger="launcher"):
        build(strategies=OFF | {key: True}, data={"train": str(tmp_path / "rows.csv")})
    assert f"{key}: no effect: every text has the same length" in caplog.messages


# Max length


def test_max_length_says_what_share_it_cuts(build, caplog):
    with caplog.at_level("INFO", logger="launcher"):
        session = build(strategies=OFF | {"max_length": {"tokens": 16}})
    lengths = session.examples.lengths
    assert lengths.used.max() == 16
    texts = 100 * (lengths.full > 16).mean()
    tokens = 100 * (lengths.full - lengths.used).sum() / lengths.full.sum()
    longest = lengths.full.max()
    expected = (
        f"max_length: cuts {texts:.1f} % of the texts and {tokens:.1f} % of the tokens (longest: {longest} tokens)"
    )
    assert expected in caplog.messages


def test_max_length_that_cuts_nothing_says_so(build, caplog):
    with caplog.at_level("INFO", logger="launcher"):
        build(strategies=OFF | {"max_length": {"tokens": 64}})
    assert "max_length: no effect on the content: no text is longer than 64 tokens" in caplog.messages


# The plan


def without_strategies(path):
    content = yaml.safe_load(path.read_text())
    del content["strategies"]
    path.write_text(yaml.safe_dump(content))
    return path


def test_free_strategies_are_on_unless_the_recipe_says_otherwise(recipe):
    chosen = [strategy.key for strategy in make_plan(check(without_strategies(recipe()))).strategies]
    assert chosen == ["fast_tokenizer", "uniform_dynamic_padding"]
    assert make_plan(check(recipe())).strategies == ()


def test_a_stated_strategy_keeps_the_free_one_that_it_excludes_away(recipe):
    path = recipe(strategies={"dynamic_padding": True})
    path.write_text(path.read_text().replace("  uniform_dynamic_padding: false\n", ""))
    assert [strategy.key for strategy in make_plan(check(path)).strategies] == ["dynamic_padding"]


def test_all_strategies_of_the_two_articles_are_there():
    assert {cls.key for cls in ALL} >= {
        "gradient_accumulation",
        "freezing",
        "mixed_precision",
        "eight_bit_optimizer",
        "gradient_checkpointing",
        "adafactor",
        "fast_tokenizer",
        "dynamic_padding",
        "uniform_dynamic_padding",
        "max_length",
    }
