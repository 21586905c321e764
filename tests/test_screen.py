"""Tables hold what they are given, on a terminal of any width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from launcher.screen import Screen


def shown(width, columns, rows):
    screen = Screen(main=True)
    screen.console = Console(file=io.StringIO(), width=width, soft_wrap=True, highlight=False)
    screen.table("Table", columns, rows)
    return screen.console.file.getvalue()


@pytest.mark.parametrize("name", ["[red]", "[/red]", "[link=x]y", "a[b]", ":smile:"])
def test_names_are_shown_as_they_stand(name):
    text = shown(80, ["class", name], [[name, "0.5"]])
    assert text.count(name) == 2


def test_negative_numbers_stand_right_too():
    lines = shown(80, ["metric", "always the mean"], [["loss", "0.5000"], ["pearson", "-0.1000"]]).splitlines()
    assert {len(line.rstrip()) for line in lines if "0." in line or "-0." in line} == {len("  pearson") + 18}


@pytest.mark.parametrize("width", [20, 40, 60])
def test_a_narrow_terminal_loses_no_word_and_no_column(width):
    words = ["gradient_accumulation", "0.571", "micro-batches", "examples"]
    text = shown(width, ["class", "precision", "what", "count"], [[*words]])
    assert all(word in text for word in [*words, "precision", "count"])
