"""A recipe less its mistakes, so that one look finds those that lie behind them too."""

from __future__ import annotations

import copy
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from launcher.recipe import Recipe
from launcher.recipe_words import meant, place_of
from launcher.yaml_file import Place

# What a recipe must say and no other part of it is checked against; never trained with.
_STAND_INS: dict[Place, object] = {
    ("name",): "unnamed",
    ("training", "batch_size"): 1,
    ("training", "learning_rate"): 1e-3,
}


def what_is_right(content: object, found: list[ErrorDetails]) -> Recipe | None:
    """Misspelled keys are taken as meant, wrong values left out; None where too little is left."""
    mended = copy.deepcopy(content)
    for details in found:
        _mend(mended, place_of(details), details["type"] == "extra_forbidden")
    if not isinstance(mended, dict) or not isinstance(mended.setdefault("training", {}), dict):
        return None
    for (*section, key), value in _STAND_INS.items():
        _at(mended, tuple(section)).setdefault(key, value)
    training = mended["training"]
    if ("epochs" in training) == ("updates" in training):
        training.pop("epochs", None)
        training["updates"] = 1
    try:
        return Recipe.model_validate(mended)
    except ValidationError:
        return None


def _mend(content: Any, place: Place, is_unknown: bool) -> None:
    section = _at(content, place[:-1])
    if not place or not isinstance(section, dict) or place[-1] not in section or place == ("training",):
        return
    value = section.pop(place[-1])
    known = meant(place) if is_unknown else None
    if known is not None:
        section.setdefault(known, value)


def _at(content: Any, place: Place) -> Any:
    for part in place:
        content = content.get(part) if isinstance(content, dict) else None
    return content
