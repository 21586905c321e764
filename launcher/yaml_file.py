"""Strict YAML: line numbers, no repeated keys, 2e-5 is a number, no / yes / 12:30:00 stay words."""

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.reader import ReaderError

from launcher.errors import RecipeError

Place = tuple[str | int, ...]
MAX_NODES = 100_000  # aliases of aliases grow a small file into billions of values


@dataclass
class Document:
    """A file's value, where each key of it stands (1-based lines), and what was wrong on the way."""

    value: Any = None
    lines: dict[Place, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    empty: list[Place] = field(default_factory=list)  # keys with nothing behind them, not even null
    unread: set[Place] = field(default_factory=set)  # a problem says why; their value here is None


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


# What PyYAML finds -> what a person can do about it.
_REMEDIES = {
    r"found character '\t'": "that is a tab; indent with spaces",
    "found character '": "put a text that begins with such a character in quotes",
    "found undefined alias": "put a text that begins with * in quotes",
    "found unknown escape character": "write a path with / or in single quotes",
    "expected escape sequence": "write a path with / or in single quotes",
    "found unexpected end of stream": "the quote opened on line {opened} is not closed",
    "expected ',' or": "a comma is missing, or the bracket opened on line {opened} is not closed",
    "mapping values are not allowed": "look here and one line up: keys of a section start in one column, "
    "a space follows the colon, a text with a colon in it stands in quotes",
    "expected <block end>": "keys of a section start in one column",
    "could not find expected ':'": "write `key: value`, with a space behind the colon",
    "found another document": "--- starts a second recipe; keep one a file",
}


class _Loader(yaml.SafeLoader):
    """Resolves no scalar by itself: every plain word arrives as text, `_scalar` decides."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012, PyYAML declares it so


def read_yaml(path: Path) -> Document:
    """The file's mapping; RecipeError where it cannot be read as one at all."""
    try:
        content = path.read_bytes()
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise RecipeError(str(path), [f"cannot be read: {error.strerror or error}"]) from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RecipeError(str(path), [f"line {line}: is not UTF-8; save the file as UTF-8"]) from None
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
        document = Document()
        if node is not None:
            document.value = _Reader(document, where).value(node, ())
    except yaml.MarkedYAMLError as error:
        raise RecipeError(where, [_not_yaml(error)]) from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise RecipeError(where, [f"line {line}: not YAML: character {error.character:#x} is not text"]) from None
    except RecursionError:
        raise RecipeError(where, ["is nested too deeply"]) from None
    return document


def _not_yaml(error: yaml.MarkedYAMLError) -> str:
    """Where, what and how to mend it."""
    mark = error.problem_mark or error.context_mark
    line = f"line {mark.line + 1}: " if mark else ""
    problem = (error.problem or error.context or "").removeprefix("but ")
    remedy = next((words for start, words in _REMEDIES.items() if problem.startswith(start)), "")
    opened = error.context_mark.line + 1 if error.context_mark else ""
    return f"{line}not YAML: {problem}" + (f"; {remedy.format(opened=opened)}" if remedy else "")


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
            raise RecipeError(self.where, [f"{_line(node)}: aliases never end or grow too large; write the values out"])
        if node.tag not in _PLAIN_TAGS:
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            self._note(node, place, f"the tag {tag} is not used in recipes; write the plain value")
            self.document.unread.add(place)
            return None
        if isinstance(node, yaml.ScalarNode) and not node.value and not node.style and place:
            self.document.empty.append(place)
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
                self._note(key_node, place, "a key must be a word")
                continue
            key = key_node.value
            if key in result:
                first = self.document.lines[(*place, key)]
                self._note(key_node, (*place, key), f"stands twice, first on line {first}; keep one")
                continue
            if key == "<<":
                self._note(key_node, place, "<< is not used in recipes; write the keys out")
                continue
            self.document.lines[(*place, key)] = key_node.start_mark.line + 1
            result[key] = self.value(value_node, (*place, key))
        return result

    def _note(self, node: yaml.Node, place: Place, text: str) -> None:
        key = ".".join(str(part) for part in place)
        self.document.problems.append(f"{_line(node)}: " + (f"{key}: " if key else "") + text)


def _line(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}"


def _scalar(text: str) -> Any:
    for pattern, convert in _SCALARS:
        if pattern.fullmatch(text):
            return convert(text)
    return text
