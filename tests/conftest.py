"""A small real model, small real data, and sessions built from recipes as the product builds them."""

from __future__ import annotations

import copy
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
WORDS = [
    "the",
    "room",
    "was",
    "clean",
    "and",
    "staff",
    "were",
    "kind",
    "but",
    "breakfast",
    "cold",
    "noise",
    "at",
    "night",
    "kept",
    "us",
    "awake",
    "good",
    "bad",
]

Overrides = dict[str, Any]


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What these tests and the processes that they start keep: no test reads or writes the user's own."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FRUGAL_LAUNCHER_CACHE", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def no_calibration(cache: Path) -> None:
    """A plan hangs on what earlier runs have shown, a test on no other test."""
    (cache / "calibration.jsonl").unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def no_log_lines() -> Iterator[None]:
    """A run shows its log lines above the bar from then on; the next test starts without."""
    logger = logging.getLogger("launcher")
    before = (logger.handlers, logger.level, logger.propagate)
    yield
    logger.handlers, logger.level, logger.propagate = before


@pytest.fixture(scope="session")
def shared() -> Path:
    if not SHARED.exists():
        pytest.skip("needs ../shared, the real Chinese data and model beside the checkout")
    return SHARED


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer BERT with random weights and a word tokenizer, as a folder that any loader reads."""
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


def make_tiny_model(folder: Path, padding_side: str = "right", **config: Any) -> Path:
    """`config`: what differs from its tiny BERT."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    words = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words,
        model_max_length=64,
        padding_side=padding_side,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
    torch.manual_seed(0)
    tiny: dict[str, Any] = {
        "vocab_size": len(names),
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "max_position_embeddings": 64,
        "initializer_range": 0.2,  # large enough that every layer's gradient is far above rounding
    }
    BertModel(BertConfig(**tiny | config)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_rows(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Texts of 1 to 40 words, with a class, several labels and a number that depend on the words."""
    generator = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        words = generator.choice(WORDS, size=int(generator.integers(1, 41))).tolist()
        share = sum(word in ("good", "clean", "kind") for word in words) / len(words)
        rows.append(
            {
                "text": " ".join(words),
                "text_pair": " ".join(words[:3]),
                "label": "good" if share > 0.15 else "bad",
                "labels": [word for word in ("clean", "cold", "kind") if word in words] or ["none"],
                "score": round(share, 4),
            }
        )
    return rows


@pytest.fixture(scope="session")
def rows_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in make_rows(56)), encoding="utf-8")
    return path


@pytest.fixture
def recipe(tmp_path: Path, tiny_model: Path, rows_file: Path) -> Callable[..., Path]:
    """Writes a recipe for the tiny model; sections given replace the keys of the same name."""

    def write(**sections: Overrides) -> Path:
        content: Overrides = {
            "name": "tiny",
            "model": {
                "source": str(tiny_model),
                "config": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
            },
            "task": {"type": "sequence_classification"},
            "data": {"train": str(rows_file)},
            "training": {"batch_size": 24, "updates": 2, "learning_rate": 1e-3},
            "strategies": {"uniform_dynamic_padding": False, "fast_tokenizer": False},
            "output": {"folder": str(tmp_path / "runs")},
        }
        for section, changes in copy.deepcopy(sections).items():
            content[section] = content.get(section, {}) | changes
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        return path

    return write


@pytest.fixture
def plan_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Plans are made in this process, which has imported torch already; requests and answers go through JSON."""
    from accelerate.state import AcceleratorState

    from launcher.forecast.__main__ import ANSWERS

    def ask(what: str, request: dict[str, Any], *, on_cpu: bool) -> Any:
        return json.loads(json.dumps(ANSWERS[what](json.loads(json.dumps(request)))))

    monkeypatch.setattr("launcher.planner.start.ask", ask)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture
def build(recipe: Callable[..., Path]) -> Iterator[Callable[..., Any]]:
    """A Session as the product builds it; Accelerate's state is forgotten before each and at the end."""
    from accelerate.state import AcceleratorState

    def make(**sections: Overrides) -> Any:
        AcceleratorState._reset_state(reset_partial_state=True)
        return session_from(recipe(**sections))

    yield make
    AcceleratorState._reset_state(reset_partial_state=True)


def forget_forms() -> None:
    """As in a new process: Accelerate and the forms leave their choice in shared state and in the environment."""
    from accelerate.state import AcceleratorState
    from transformers.integrations.deepspeed import unset_hf_deepspeed_config

    unset_hf_deepspeed_config()
    AcceleratorState._reset_state(reset_partial_state=True)
    for name in ("ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP"):
        os.environ.pop(name, None)


def session_from(path: Path, processes: int = 1) -> Any:
    from launcher.build import build_session
    from launcher.check import check
    from launcher.load import load_parts
    from launcher.plan import make_plan
    from launcher.processes import start_form

    plan = make_plan(check(path, processes=processes))
    return build_session(plan, start_form(plan), load_parts(plan))
