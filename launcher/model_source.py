"""What a model's own config.json says, read without transformers and without weights."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.sources import resolve

WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin", "pytorch_model.bin.index.json")


@dataclass(frozen=True)
class ModelFacts:
    """A local model folder's config.json as it stands."""

    folder: Path
    config: dict[str, Any]

    @property
    def layers(self) -> int | None:
        """How many layers it has, where its config says so under one of the usual names."""
        for name in ("num_hidden_layers", "n_layer", "n_layers", "num_layers"):
            if isinstance(self.config.get(name), int):
                return int(self.config[name])
        return None

    @property
    def parameters(self) -> int | None:
        """How many its safetensors hold, by their headers; None where the weights are pickled."""
        files = sorted(self.folder.glob("*.safetensors"))
        return sum(_elements(file) for file in files) if files else None


def _elements(safetensors: Path) -> int:
    """The file begins with its header's length, then the header: JSON with each tensor's shape."""
    with safetensors.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


def read_model_facts(source: str, base: Path) -> ModelFacts | None:
    """None for a hub id; ValueError says what is wrong with a local folder."""
    kind, place = resolve(source, base)
    if kind == "hub":
        return None
    folder = Path(place)
    if not folder.is_dir():
        raise ValueError(f"{source!r} is a file; a model is a folder with config.json and weights")
    config_file = folder / "config.json"
    if not config_file.exists():
        raise ValueError(f"{source!r} holds no config.json; there are {_listing(folder)}")
    try:
        config = json.loads(config_file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{source!r}: config.json is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{source!r}: config.json is not a mapping")
    if not any(any(folder.glob(pattern)) for pattern in WEIGHTS):
        raise ValueError(f"{source!r} holds no weights ({' or '.join(WEIGHTS[:1] + WEIGHTS[2:3])})")
    return ModelFacts(folder, config)


def _listing(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    return ", ".join(names[:8]) + (" ..." if len(names) > 8 else "") if names else "no files in it"
