"""Where a search stands, for the tiny model and a device of fixed rates."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launcher.devices import CORE_BANDWIDTH, CORE_FLOPS, CPU, Device, find_device
from launcher.planner.ground import Ground
from tests.conftest import WORDS, make_tiny_model

# Which plan is the fastest must not hang on the cores of the machine that runs the tests.
TWO_CORES = replace(
    CPU, bandwidth=2 * CORE_BANDWIDTH, link=2 * CORE_BANDWIDTH, float32=2 * CORE_FLOPS, half=2 * CORE_FLOPS
)


@pytest.fixture
def ground(recipe: Callable[..., Path]) -> Iterator[Callable[..., Ground]]:
    """Makes one of a recipe's sections: its data is read, nothing is measured yet."""
    from accelerate.state import AcceleratorState

    from launcher.check import check
    from launcher.planner.ground import stand_on

    def make(device: str = "cpu", **sections: Any) -> Ground:
        target: Device = TWO_CORES if device == "cpu" else find_device(device)
        return stand_on(check(recipe(**sections), target=target), target)

    yield make
    AcceleratorState._reset_state(reset_partial_state=True)


def with_positions(folder: Path, positions: int) -> Path:
    """The tiny model with another number of tokens that it reads."""
    from transformers import BertConfig, BertModel

    make_tiny_model(folder)
    config = BertConfig.from_pretrained(folder)
    config.max_position_embeddings = positions
    BertModel(config).save_pretrained(folder)
    place = folder / "tokenizer_config.json"
    content = json.loads(place.read_text(encoding="utf-8")) | {"model_max_length": positions}
    place.write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def few_positions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reads 48 tokens, which is no power of two."""
    return with_positions(tmp_path_factory.mktemp("few"), 48)


@pytest.fixture(scope="session")
def long_texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Sections of a recipe: texts of 20 to 490 tokens and a model that reads 512."""
    folder = tmp_path_factory.mktemp("long")
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(WORDS, size=length - 2)) for length in range(20, 500, 10)]
    rows = [{"text": text, "label": "ab"[number % 2]} for number, text in enumerate(texts)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    source = with_positions(folder / "model", 512)
    return {"model": {"source": str(source)}, "data": {"train": str(folder / "rows.jsonl")}}
