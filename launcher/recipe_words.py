"""What pydantic finds wrong with a recipe, in the house's words: what it is, and what to write instead."""

from __future__ import annotations

import difflib
import re
import types
import typing
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from launcher.recipe import Recipe
from launcher.yaml_file import Place


def in_words(found: list[ErrorDetails], told: set[Place]) -> list[tuple[Place, str]]:
    """Each finding's place and words; none for what is `told` already, or follows from another finding."""
    placed = [(place_of(details), details) for details in found]
    taken = {(*place[:-1], meant(place)) for place, details in placed if details["type"] == "extra_forbidden"}
    return [
        (place, _words(details, place))
        for place, details in placed
        if place not in told and not (details["type"] == "missing" and place in taken)
    ]


def place_of(details: ErrorDetails) -> Place:
    """The keys that lead to a finding."""
    return _without_type_names(details["loc"])


def meant(place: Place) -> str | None:
    """The key that an unknown one is nearly."""
    return _closest(str(place[-1]), _names_at(place[:-1]))


def empty(place: Place) -> str:
    """What to do about a key with nothing behind it."""
    names = ", ".join(_names_at(place))
    if _is_strategy(place):
        needed = [name for name, field in _fields_at(place).items() if field.is_required()]
        return "is empty; write " + " or ".join(
            ([] if needed else ["true"]) + ([f"its settings ({names})"] if names else [])
        )
    return f"is empty; its keys are {names}" if names else "is empty; write a value or leave the key out"


def _words(details: ErrorDetails, place: Place) -> str:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "missing":
        return "is missing" + _described(place)
    if kind == "extra_forbidden":
        return "unknown key; " + _nearest(str(place[-1]), _names_at(place[:-1]))
    if kind == "literal_error":
        expected = str(context["expected"]).replace("'", "").replace(" or ", ", ")
        if ", " not in expected:
            return f"{_shown(value)} is not known; write {expected}"
        return f"{_shown(value)} is not one of {expected}" + _close(str(value), expected.split(", "))
    if kind == "value_error":
        return str(context["error"])
    if kind == "string_pattern_mismatch":
        return f"{_shown(value)} may hold letters, digits, dot, dash and underscore only"
    if kind == "string_too_short" and not value:
        return "is an empty text"
    if kind == "model_type":
        return _not_a_section(value, place)
    wanted = _WANTED.get(kind)
    if wanted is None:
        message = details["msg"]
        return f"{_shown(value)}: {message[0].lower()}{message[1:]}"
    numbers = {name: _plain(number) for name, number in context.items()}
    return f"{_shown(value)} is not {wanted.format(**numbers)}" + _rewritten(kind, value)


def _not_a_section(value: object, place: Place) -> str:
    names = ", ".join(_names_at(place))
    kinds = "true, false or a mapping" if _is_strategy(place) else "a mapping"
    advice = f"; its keys are {names}" if names else ""
    return f"{_shown(value)} is not {kinds}" + (_rewritten("bool_type", value) or advice)


def _is_strategy(place: Place) -> bool:
    return len(place) == 2 and place[0] == "strategies"


def _plain(number: object) -> object:
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _rewritten(kind: str, value: object) -> str:
    """How to write what was meant, where only its kind is wrong."""
    if kind == "string_type" and isinstance(value, int | float):
        return "; put it in quotes"
    if kind in ("int_type", "float_type") and isinstance(value, str) and _NUMBER.fullmatch(value):
        return "; write it without quotes"
    if kind in ("int_type", "int_from_float") and isinstance(value, float) and value.is_integer():
        return f"; write {int(value)}"
    if kind == "bool_type" and value in ("yes", "on", "no", "off"):
        return f"; write {'true' if value in ('yes', 'on') else 'false'}"
    return ""


_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "finite_number": "a finite number",
    "greater_than": "above {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "below {lt}",
    "less_than_equal": "{le} or less",
    "string_too_long": "{max_length} letters or shorter",
}


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _nearest(word: str, names: list[str]) -> str:
    close = _closest(word, names)
    return f"did you mean {close}?" if close else f"known: {', '.join(names)}"


def _close(word: str, names: list[str]) -> str:
    close = _closest(word, names)
    return f"; did you mean {close}?" if close else ""


def _closest(word: str, names: list[str]) -> str | None:
    return next(iter(difflib.get_close_matches(word, names, n=1)), None)


def _described(place: Place) -> str:
    field = _fields_at(place[:-1]).get(str(place[-1]))
    return f" ({field.description[0].lower()}{field.description[1:]})" if field and field.description else ""


def _names_at(place: Place) -> list[str]:
    return list(_fields_at(place))


def _fields_at(place: Place) -> dict[str, FieldInfo]:
    model = _model_at(place)
    return model.model_fields if model else {}


def _model_at(place: Place) -> type[BaseModel] | None:
    """The section class at a place of the recipe."""
    model: type[BaseModel] | None = Recipe
    for part in place:
        field = model.model_fields.get(str(part)) if model else None
        model = _section_class(field.annotation) if field else None
    return model


def _section_class(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        found = (_section_class(part) for part in typing.get_args(annotation))
        return next((section for section in found if section is not None), None)
    return None


def _without_type_names(location: tuple[int | str, ...]) -> Place:
    """Pydantic's place of an error also names the member of a union it tried; people wrote no such key."""
    place: Place = ()
    for part in location:
        model = _model_at(place)
        if model is not None and place and str(part) == model.__name__:
            continue
        place = (*place, part)
    return place
