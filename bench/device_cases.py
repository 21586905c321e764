"""What bench/device_check.py trains: models from their configs with random weights, texts from a seed, recipes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from launcher.job import Job

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = [f"w{number:03d}" for number in range(600)]
CLASSES = 4
OWN_WORDS, OWN_SHARE = 40, 0.4  # of a class, and how often its texts use them: what there is to learn
# Lengths in words as of reviews: median 60, mean 86, 95 % below 260, cut where the models end.
LOG_MEAN, LOG_DEVIATION = 4.1, 0.9


@dataclass(frozen=True)
class Scale:
    """How large everything is. `budget` in words of a recipe; `cut` is the fixed recipe's length."""

    rows: int
    longest: int
    batch: int
    updates: int
    cut: int
    budget: str
    sizes: Mapping[str, Mapping[str, Any]]


FULL = Scale(
    rows=2000,
    longest=512,
    batch=32,
    updates=20,
    cut=128,
    budget="4GB",
    sizes={
        "bert-base": {},
        "bert-large": {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
        "gpt2": {},
        "roberta-base": {"vocab_size": 50265, "type_vocab_size": 1},
        "distilroberta": {"vocab_size": 50265, "type_vocab_size": 1, "num_hidden_layers": 6},
        "small": {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512},
    },
)
_TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
TINY = Scale(
    rows=160,
    longest=64,
    batch=16,
    updates=4,
    cut=32,
    budget="5MB",
    sizes={
        "bert-base": _TINY | {"vocab_size": 700},
        "bert-large": _TINY | {"vocab_size": 700, "num_hidden_layers": 4},
        "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 700},
        "small": _TINY | {"vocab_size": 700},
    },
)
KINDS = {"gpt2": "gpt2", "roberta-base": "roberta", "distilroberta": "roberta"}  # all others are "bert"


@dataclass(frozen=True)
class Case:
    """A way to train whose memory and time are forecast and measured. `is_tiny`: also on a CPU, in small."""

    name: str
    model: str
    strategies: Mapping[str, Any]
    is_tiny: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


# torch prefers cuDNN's attention for half precision on Hopper and Blackwell; so it does not (older and newer name).
NO_CUDNN = {"TORCH_CUDNN_SDPA_DEPRIORITIZED": "1", "TORCH_CUDNN_SDPA_PREFERRED": "0"}


def _of(examples: int) -> dict[str, int]:
    return {"micro_batch": examples}


BF16, FP16 = {"precision": "bf16"}, {"precision": "fp16"}
_ALL_FROZEN = {"embeddings": True, "first_layers": 12}
CASES = (
    Case("bert-base, AdamW", "bert-base", {"gradient_accumulation": _of(16)}, is_tiny=True),
    Case("bert-large, AdamW", "bert-large", {"gradient_accumulation": _of(8)}),
    Case("bert-large, checkpointing", "bert-large", {"gradient_checkpointing": True}),
    Case("bert-large, Adafactor", "bert-large", {"adafactor": True, "gradient_accumulation": _of(4)}),
    Case("bert-large, 8-bit AdamW", "bert-large", {"eight_bit_optimizer": True, "gradient_accumulation": _of(4)}),
    Case("bert-large, offload", "bert-large", {"optimizer_offload": True, "gradient_accumulation": _of(4)}, True),
    Case("bert-large, fp16", "bert-large", {"mixed_precision": FP16, "gradient_accumulation": _of(8)}),
    Case("gpt2, bf16", "gpt2", {"mixed_precision": BF16, "gradient_accumulation": _of(16)}),
    Case("bert-base, bf16", "bert-base", {"mixed_precision": BF16, "gradient_accumulation": _of(16)}),
    Case(
        "bert-base, bf16, without cuDNN's attention",
        "bert-base",
        {"mixed_precision": BF16, "gradient_accumulation": _of(16)},
        environment=NO_CUDNN,
    ),
    Case(
        "roberta-base, half of it frozen",
        "roberta-base",
        {"freezing": {"embeddings": True, "first_layers": 6}, "gradient_accumulation": _of(16)},
    ),
    Case("distilroberta, uneven, by tokens", "distilroberta", {"gradient_accumulation": {"tokens": 8192}}),
    Case("gpt2, uneven, by tokens", "gpt2", {"gradient_accumulation": {"tokens": 2048}}, is_tiny=True),
    # Nothing but the head learns: evaluation is as full as training.
    Case("bert-base, evaluation", "bert-base", {"freezing": _ALL_FROZEN, "gradient_accumulation": _of(32)}),
)


def make_world(folder: Path, scale: Scale, *, with_weights: bool) -> None:
    """Models, texts and a recipe for each case; what is there already stays."""
    for name in scale.sizes:
        if not (folder / name / "model.safetensors").exists():
            _make_model(folder / name, name, scale, with_weights=with_weights)
    rows = "".join(json.dumps(row) + "\n" for row in make_rows(scale))
    (folder / "rows.jsonl").write_text(rows, encoding="utf-8")
    for case in cases(scale):
        write_recipe(folder, scale, file_name(case.name), case.model, dict(case.strategies))
    write_recipe(folder, scale, "cap", "bert-large", {})
    write_recipe(folder, scale, "speed", "bert-large", {"max_length": {"tokens": scale.cut}})
    write_recipe(folder, scale, "half", "small", {"gradient_accumulation": _of(8)}, learning_rate=1e-3)


def cases(scale: Scale) -> list[Case]:
    return [case for case in CASES if scale is FULL or case.is_tiny]


def find_case(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def file_name(name: str) -> str:
    """`bert-base, 8-bit` -> `bert-base_8-bit`."""
    return name.replace(", ", "_").replace(" ", "-").replace("'", "")


def write_recipe(
    folder: Path, scale: Scale, name: str, model: str, strategies: dict[str, Any], learning_rate: float = 2e-5
) -> None:
    content = {
        "name": name,
        "model": {"source": model},
        "task": {"type": "sequence_classification"},
        "data": {"train": "rows.jsonl", "validation": {"share": 0.1}},
        "training": {"batch_size": scale.batch, "updates": scale.updates, "learning_rate": learning_rate},
        "strategies": strategies,
        "output": {"folder": str(folder / "trained")},
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")


def make_rows(scale: Scale, seed: int = 0) -> list[dict[str, str]]:
    """Texts whose class shows in their words."""
    generator = np.random.default_rng(seed)
    lengths = np.exp(generator.normal(LOG_MEAN, LOG_DEVIATION, scale.rows)) * scale.longest / 512
    rows = []
    for number, length in enumerate(np.clip(lengths.round().astype(int), 3, scale.longest - 2)):
        label = number % CLASSES
        own = generator.random(length) < OWN_SHARE
        places = np.where(own, label * OWN_WORDS + generator.integers(OWN_WORDS, size=length), -1)
        places = np.where(own, places, generator.integers(len(WORDS), size=length))
        rows.append({"text": " ".join(WORDS[place] for place in places), "label": f"class {label}"})
    return rows


def _make_model(folder: Path, name: str, scale: Scale, *, with_weights: bool) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    kind = KINDS.get(name, "bert")
    positions = {"gpt2": {}, "roberta": {"max_position_embeddings": scale.longest + 2}}
    config = AutoConfig.for_model(
        kind,
        **positions.get(kind, {"max_position_embeddings": scale.longest}),
        **scale.sizes[name],
        **{"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3},
        num_labels=CLASSES,
    )
    _make_tokenizer(folder, scale, with_types=kind == "bert")
    if with_weights:
        torch.manual_seed(0)
        AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    else:
        config.save_pretrained(folder)
        (folder / "model.safetensors").write_bytes(b"")  # a forecast reads none


def _make_tokenizer(folder: Path, scale: Scale, *, with_types: bool) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    names = [*SPECIAL, *WORDS]
    words = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=words,
        model_max_length=scale.longest,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        eos_token="[SEP]",
        model_input_names=["input_ids", *(["token_type_ids"] if with_types else []), "attention_mask"],
    ).save_pretrained(folder)


def job_of(folder: Path, name: str, overrides: tuple[str, ...] = (), **options: Any) -> Job:
    from launcher.check import check

    return check(folder / f"{name}.yaml", overrides, **options)
