"""Strict YAML: line numbers, no repeated keys, 2e-5 is a number, no / yes / 12:30:00 stay words."""

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from launcher.errors import RecipeError

Place = tuple[str | int, ...]
MAX_NODES = 100_000  # aliases of aliases grow a small file into billions of values


@dataclass
class Document:
    """A file's value, where each key of it stands (1-based lines), and what was wrong on the way."""

    value: Any = None
    lines: dict[Place, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


# The core schema of YAML 1.2.2, section 10.3.2, in decimal only: 012 is twelve and 0x10 a word.
_SCALARS: list[tuple[re.Pattern[str], Callable[[str], Any]]] = [
    (re.compile(r"|~|null|Null|NULL"), lambda text: None),
    (re.compile(r"true|True|TRUE"), lambda text: True),
    (re.compile(r"false|False|FALSE"), lambda text: False),
    (re.compile(r"[-+]?[0-9]{1,18}"), int),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), lambda text: float(text.replace(".", ""))),
]
_PLAIN_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


class _Loader(yaml.SafeLoader):
    """Resolves no scalar by itself: every plain word arrives as text, `_scalar` decides."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012, PyYAML declares it so


def read_yaml(path: Path) -> Document:
    """The file's mapping; RecipeError where it cannot be read as one at all."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise RecipeError(str(path), [f"cannot be read: {error.strerror or error}"]) from None
    except UnicodeDecodeError as error:
        raise RecipeError(str(path), [f"byte {error.start} is not UTF-8; save the file as UTF-8"]) from None
    document = parse_yaml(text, str(path))
    if document.value is None:
        raise RecipeError(str(path), ["is empty; see recipes/ for examples"])
    if not isinstance(document.value, dict):
        kind = "a list" if isinstance(document.value, list) else "a single value"
        raise RecipeError(str(path), [f"is {kind}; a recipe is a mapping of sections such as model: and data:"])
    return document


def parse_yaml(text: str, where: str) -> Document:
    """RecipeError names the line where `text` stops being YAML."""
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise RecipeError(where, [f"{line}not YAML: {error.problem or error.context}"]) from None
    except yaml.YAMLError as error:
        raise RecipeError(where, [f"not YAML: {error}"]) from None
    except RecursionError:
        raise RecipeError(where, ["is nested too deeply"]) from None
    document = Document()
    if node is not None:
        document.value = _Reader(document, where).value(node, ())
    return document


class _Reader:
    """Turns nodes into values, noting lines and problems in the document."""

    def __init__(self, document: Document, where: str) -> None:
        self.document = document
        self.where = where
        self.nodes = 0
        self.open: list[yaml.Node] = []

    def value(self, node: yaml.Node, place: Place) -> Any:
        self.document.lines.setdefault(place, node.start_mark.line + 1)
        self.nodes += 1
        if self.nodes > MAX_NODES or node in self.open:
            raise RecipeError(self.where, [f"{_line(node)}: this alias never ends or grows too large"])
        if node.tag not in _PLAIN_TAGS:
            self.document.problems.append(
                f"{_line(node)}: tag {node.tag} is not used in recipes; write the plain value"
            )
            return None
        self.open.append(node)
        value = self._inner(node, place)
        self.open.pop()
        return value

    def _inner(self, node: yaml.Node, place: Place) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*place, index)) for index, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return node.value if node.style else _scalar(node.value)

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[Hashable, Any]:
        result: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self.document.problems.append(f"{_line(key_node)}: a key must be a word")
                continue
            key = key_node.value
            if key in result:
                first = self.document.lines[(*place, key)]
                self.document.problems.append(f"{_line(key_node)}: {key}: stands twice, first on line {first}")
                continue
            self.document.lines[(*place, key)] = key_node.start_mark.line + 1
            result[key] = self.value(value_node, (*place, key))
        return result


def _line(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}"


def _scalar(text: str) -> Any:
    for pattern, convert in _SCALARS:
        if pattern.fullmatch(text):
            return convert(text)
    return text
