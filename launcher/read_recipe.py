"""A recipe file and command-line overrides -> Recipe, or every problem at once with its line and its remedy."""

from __future__ import annotations

import difflib
import types
import typing
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from launcher.errors import RecipeError
from launcher.recipe import Recipe
from launcher.yaml_file import Document, Place, parse_yaml, read_yaml

# Overrides are typed in a shell, so their paths start from where the shell is, not from the recipe.
_PATH_KEYS = {"model.source", "data.train", "data.validation.file"}


def read_recipe(path: Path, overrides: typing.Sequence[str] = ()) -> tuple[Recipe, Document]:
    """The recipe, and the document that knows its lines; RecipeError lists all that is wrong with it."""
    document = read_yaml(path)
    for override in overrides:
        _apply(override, document)
    recipe: Recipe | None = None
    try:
        recipe = Recipe.model_validate(document.value).with_base(path.resolve().parent)
    except ValidationError as error:
        document.problems += [_problem(details, document) for details in error.errors()]
    if recipe is None or document.problems:
        raise RecipeError(str(path), in_line_order(document.problems))
    return recipe, document


def place_problem(document: Document, key: str, text: str) -> str:
    """`line 9: training.epochs: text`; the nearest enclosing key's line where the key itself is absent."""
    place: Place = tuple(key.split("."))
    while place and place not in document.lines:
        place = place[:-1]
    line = document.lines.get(place)
    where = "" if not line else "command line: " if line < 0 else f"line {line}: "
    return f"{where}{key}: {text}"


def in_line_order(problems: list[str]) -> list[str]:
    def line(problem: str) -> int:
        head = problem.split(":")[0].removeprefix("line ")
        return int(head) if head.isdigit() else 0

    return sorted(dict.fromkeys(problems), key=line)


def _apply(override: str, document: Document) -> None:
    key, equals, text = override.partition("=")
    place = tuple(key.split("."))
    if not equals or not all(place):
        document.problems.append(f"command line: {override!r} is not of the form section.key=value")
        return
    value = parse_yaml(text, f"command line: {key}").value
    if key in _PATH_KEYS and isinstance(value, str) and Path(value).expanduser().exists():
        value = str(Path(value).expanduser().resolve())
    section = document.value
    for name in place[:-1]:
        if not isinstance(section.get(name), dict):
            section[name] = {}
        section = section[name]
    section[place[-1]] = value
    for depth in range(1, len(place) + 1):
        document.lines.setdefault(place[:depth], -1)
    document.lines[place] = -1


def _problem(details: ErrorDetails, document: Document) -> str:
    """Pydantic's finding in the house's words."""
    place = _without_type_names(details["loc"])
    key = ".".join(str(part) for part in place)
    return place_problem(document, key or "recipe", _words(details, place))


def _words(details: ErrorDetails, place: Place) -> str:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "missing":
        return "is missing" + _described(place)
    if kind == "extra_forbidden":
        return "unknown key; " + _nearest(str(place[-1]), _names_at(place[:-1]))
    if kind == "literal_error":
        expected = str(context["expected"]).replace("'", "").replace(" or ", ", ")
        return f"{_shown(value)} is not one of {expected}" + _close(str(value), expected.split(", "))
    if kind == "value_error":
        return str(context["error"])
    if kind == "string_pattern_mismatch":
        return f"{_shown(value)} may hold letters, digits, dot, dash and underscore only"
    wanted = _WANTED.get(kind)
    if wanted is None:
        message = details["msg"]
        return f"{_shown(value)}: {message[0].lower()}{message[1:]}"
    return f"{_shown(value)} is not {wanted.format(**context)}"


_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "model_type": "a mapping",
    "finite_number": "a finite number",
    "greater_than": "above {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "below {lt}",
    "less_than_equal": "{le} or less",
    "string_too_short": "a word of {min_length} letters or more",
    "string_too_long": "shorter than {max_length} letters",
}


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _nearest(word: str, names: list[str]) -> str:
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(names)}"


def _close(word: str, names: list[str]) -> str:
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""


def _described(place: Place) -> str:
    model = _model_at(place[:-1])
    field = model.model_fields.get(str(place[-1])) if model else None
    return f" ({field.description[0].lower()}{field.description[1:]})" if field and field.description else ""


def _names_at(place: Place) -> list[str]:
    model = _model_at(place)
    return list(model.model_fields) if model else []


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
