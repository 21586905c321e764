from pathlib import Path

import pytest

from launcher.errors import RecipeError
from launcher.yaml_file import parse_yaml, read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),  # PyYAML alone reads it as text
        ("2E5", 2e5),
        (".5", 0.5),
        ("-3", -3),
        ("012", 12),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("12:30:00", "12:30:00"),
        ("2024-01-01", "2024-01-01"),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("-.inf", float("-inf")),
        ("1.2.3", "1.2.3"),
    ],
)
def test_plain_words_are_what_the_core_schema_says(text: str, value: object) -> None:
    read = parse_yaml(f"key: {text}", "here").value["key"]
    assert (read, type(read)) == (value, type(value))


def test_what_stands_in_quotes_is_text() -> None:
    assert parse_yaml("""{a: "1", b: 'true', c: ""}""", "here").value == {"a": "1", "b": "true", "c": ""}


def test_every_key_and_item_knows_its_line() -> None:
    document = parse_yaml("a: 1\nb:\n  c:\n    - x\n    - y\n", "here")
    assert {place: line for place, line in document.lines.items() if place} == {
        ("a",): 1,
        ("b",): 2,
        ("b", "c"): 3,
        ("b", "c", 0): 4,
        ("b", "c", 1): 5,
    }


def test_all_repeated_keys_are_named_with_both_lines() -> None:
    document = parse_yaml("a: 1\nb: {c: 1, c: 2}\na: 3\n", "here")
    assert document.problems == [
        "line 2: b.c: stands twice, first on line 2; keep one",
        "line 3: a: stands twice, first on line 1; keep one",
    ]


def test_nothing_behind_a_key_is_told_from_null() -> None:
    document = parse_yaml("a:\nb: null\nc: ''\n", "here")
    assert document.value == {"a": None, "b": None, "c": ""}
    assert document.empty == [("a",)]


def test_an_alias_stands_for_its_value() -> None:
    assert parse_yaml("a: &x [1, 2]\nb: *x\n", "here").value == {"a": [1, 2], "b": [1, 2]}


def test_a_file_that_grows_by_its_aliases_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.yaml_file.MAX_NODES", 50)
    text = "a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\nb: &b [*a, *a, *a]\n"
    assert len(parse_yaml(text, "here").value["b"]) == 3
    with pytest.raises(RecipeError, match="aliases never end or grow too large"):
        parse_yaml(text + "c: [*b, *b]\n", "here")


@pytest.mark.parametrize("depth", [400, 1000])
def test_deep_nesting_ends_without_a_traceback(depth: int) -> None:
    with pytest.raises(RecipeError, match="is nested too deeply"):
        parse_yaml("[" * depth + "]" * depth, "here")


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: x\r\n")
    assert read_yaml(path).value == {"name": "x"}
