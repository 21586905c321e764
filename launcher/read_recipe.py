"""A recipe file and command-line overrides -> Recipe, or every problem at once with its line and its remedy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from launcher.errors import RecipeError
from launcher.recipe import Recipe
from launcher.recipe_mending import what_is_right
from launcher.recipe_words import empty, in_words
from launcher.yaml_file import Document, Place, parse_yaml, read_yaml

# Overrides are typed in a shell, so their paths start from where the shell is, not from the recipe.
_PATH_KEYS = {"model.source", "data.train", "data.validation.file", "strategies.zero.config"}


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> tuple[Recipe, Document]:
    """The recipe, and the document that knows its lines; RecipeError lists all that is wrong with it."""
    recipe, document = read_what_is_right(path, overrides)
    if document.problems:
        raise RecipeError(str(path), in_line_order(document.problems))
    return recipe, document


def read_what_is_right(path: Path, overrides: Sequence[str] = ()) -> tuple[Recipe, Document]:
    """As much of a recipe as can be looked at further, beside what is wrong with it in `document.problems`.

    RecipeError where too little is left: no model, task or data.
    """
    document = read_yaml(path)
    for override in overrides:
        _apply(override, document)
    recipe: Recipe | None
    try:
        recipe = Recipe.model_validate(document.value)
    except ValidationError as error:
        found = in_words(error.errors(), {*document.unread, *document.empty})
        document.problems += [place_problem(document, _key(place) or "recipe", text) for place, text in found]
        recipe = what_is_right(document.value, error.errors())
    document.problems += [place_problem(document, _key(place), empty(place)) for place in document.empty]
    if recipe is None:
        raise RecipeError(str(path), in_line_order(document.problems))
    return recipe.with_base(path.resolve().parent), document


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
    try:
        read = parse_yaml(text, key)
    except RecipeError as error:
        document.problems += [f"command line: {key}: {problem.removeprefix('line 1: ')}" for problem in error.problems]
        return
    document.problems += [f"command line: {key}: {problem.removeprefix('line 1: ')}" for problem in read.problems]
    value = read.value
    if key in _PATH_KEYS and isinstance(value, str) and Path(value).expanduser().exists():
        value = str(Path(value).expanduser().resolve())
    section = document.value
    for depth, name in enumerate(place[:-1], start=1):
        # true and false are a strategy without settings; settings may be added to it.
        if not isinstance(section.get(name), dict | bool | None):
            document.problems.append(
                f"command line: {key}: {'.'.join(place[:depth])} is {section[name]!r} in the file, not a mapping"
            )
            return
        if not isinstance(section.get(name), dict):
            section[name] = {}
        section = section[name]
    section[place[-1]] = value
    _forget(document, place)
    if read.problems:
        document.unread.add(place)
    for depth in range(1, len(place) + 1):
        document.lines.setdefault(place[:depth], -1)


def _forget(document: Document, place: Place) -> None:
    """What the file said at this place and below it counts no more, nor that a section around it was empty."""

    def is_apart(other: Place) -> bool:
        shared = min(len(other), len(place))
        return other[:shared] != place[:shared]

    document.lines = {other: line for other, line in document.lines.items() if other[: len(place)] != place}
    document.empty = [other for other in document.empty if is_apart(other)]


def _key(place: Place) -> str:
    return ".".join(str(part) for part in place)
