"""Plans for real models on real cards, and for small real jobs on a simulated one: what proves that they fit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from launcher.check import check
from launcher.devices import Device, find_device
from launcher.errors import BudgetError
from launcher.planner.ground import Ground, stand_on
from launcher.planner.proposal import Proposal
from launcher.planner.propose import propose
from launcher.units import parse_bytes
from tests.conftest import WORDS, make_tiny_model

CARDS = {
    "GTX 1650": "4GB",
    "RTX 2060": "6GB",
    "RTX 3070": "8GB",
    "RTX 3060": "12GB",
    "T4": "16GB",
    "RTX 3090": "24GB",
}
_BERT: dict[str, Any] = {"vocab_size": 30522}
_LARGE: dict[str, Any] = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
_ROBERTA: dict[str, Any] = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}
# Name -> model type and what differs from transformers' defaults for it; the published models' own sizes.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "distilbert-base": ("distilbert", _BERT),
    "bert-base": ("bert", _BERT),
    "bert-large": ("bert", _BERT | _LARGE),
    "roberta-base": ("roberta", _ROBERTA),
    "roberta-large": ("roberta", _ROBERTA | _LARGE),
    "deberta-v3-base": (
        "deberta-v2",
        {
            "vocab_size": 128100,
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "type_vocab_size": 0,
            "relative_attention": True,
            "max_relative_positions": -1,
            "position_buckets": 256,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_biased_input": False,
        },
    ),
    "gpt2": ("gpt2", {}),
    "qwen3-0.6b": (
        "qwen3",
        {
            "vocab_size": 151936,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "tie_word_embeddings": True,
        },
    ),
}


def make_model(name: str, folder: Path) -> Path:
    """Its config and the tiny model's tokenizer, which reads 512 tokens; the file of weights is empty."""
    from transformers import AutoConfig

    make_tiny_model(folder)
    place = folder / "tokenizer_config.json"
    content = json.loads(place.read_text(encoding="utf-8")) | {"model_max_length": 512}
    if name.startswith(("roberta", "gpt2", "qwen", "distilbert")):
        content["model_input_names"] = ["input_ids", "attention_mask"]
    place.write_text(json.dumps(content), encoding="utf-8")
    model_type, sizes = MODELS[name]
    AutoConfig.for_model(model_type, **sizes).save_pretrained(folder)
    (folder / "model.safetensors").write_bytes(b"")
    return folder


def write_rows(place: Path, lengths: np.ndarray, seed: int = 0) -> Path:
    """Texts of so many tokens, two of which are the special ones."""
    generator = np.random.default_rng(seed)
    rows = [
        {"text": " ".join(generator.choice(WORDS, size=max(1, int(length) - 2))), "label": "ab"[number % 2]}
        for number, length in enumerate(lengths)
    ]
    place.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return place


def review_lengths(count: int) -> np.ndarray:
    """Like hotel reviews': median 60 tokens, mean about 90, one in twenty above 270, the longest cut at 512."""
    return np.random.default_rng(0).lognormal(np.log(60), 0.92, count).astype(int).clip(4, 600)


def write_recipe(place: Path, model: Path, rows: Path, **sections: dict[str, Any]) -> Path:
    content: dict[str, Any] = {
        "name": "fit",
        "model": {"source": str(model)},
        "task": {"type": "sequence_classification"},
        "data": {"train": str(rows), "validation": {"share": 0.2}},
        "training": {"batch_size": 32, "epochs": 1, "learning_rate": 2.0e-5},
        "output": {"folder": str(place.with_name("runs"))},
    }
    for section, changes in sections.items():
        content[section] = content.get(section, {}) | changes
    place.write_text(yaml.safe_dump(content), encoding="utf-8")
    return place


@dataclass(frozen=True)
class Target:
    """One card and budget; `answer` is what the planner says."""

    model: str
    device: Device
    budget: int
    recipe: Path
    answer: Proposal | BudgetError
    seconds: float = field(compare=False, default=0.0)


def plans(name: str, folder: Path, rows: Path) -> Iterator[Target]:
    """For every card with all of its memory; measurements are shared by cards of one generation."""
    import time

    model = make_model(name, folder / name)
    recipe = write_recipe(folder / f"{name}.yaml", model, rows)
    for card, size in CARDS.items():
        device, budget = find_device(card), parse_bytes(size)
        start = time.perf_counter()
        ground = stand_on(check(recipe, target=device), device)
        # Some model types bring a tokenizer class of their own, to which every word of these texts is nothing.
        assert ground.longest() == 512, f"{name} reads texts of {ground.longest()} tokens at most"
        answer = answer_of(ground, budget)
        yield Target(name, device, budget, recipe, answer, time.perf_counter() - start)


def answer_of(ground: Ground, budget: int) -> Proposal | BudgetError:
    try:
        return propose(ground, budget)
    except BudgetError as error:
        return error


def overrides_of(found: Proposal) -> list[str]:
    """The plan written as a recipe."""
    return [f"strategies.{key}={json.dumps(fields) if fields else 'true'}" for key, fields in found.strategies.items()]


def smallest_budget(ground: Ground, enough: int, precision: float = 0.002) -> int:
    """By bisection, the least for which a plan is found, to this share of it; `enough` is one that is."""
    low, high = 0, enough
    while high - low > precision * high:
        middle = (low + high) // 2
        if isinstance(answer_of(ground, middle), Proposal):
            high = middle
        else:
            low = middle
    return high
