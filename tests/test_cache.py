"""Answers kept on disk: whole or not at all, and never a reason to fail."""

from __future__ import annotations

import os

from launcher import cache as kept


def test_what_is_written_is_read(cache):
    kept.write("tests", "key", {"a": [1, 2.5, None]})
    assert kept.read("tests", "key") == {"a": [1, 2.5, None]}
    assert kept.read("tests", "other") is None
    assert [entry.name for entry in (cache / "tests").iterdir()] == ["key.json"]


def test_the_oldest_go(cache, monkeypatch):
    monkeypatch.setattr(kept, "MOST_ENTRIES", 2)
    for number in range(4):
        kept.write("pruned", str(number), number)
        os.utime(cache / "pruned" / f"{number}.json", (number, number))
    assert sorted(entry.stem for entry in (cache / "pruned").iterdir()) == ["2", "3"]


def test_a_folder_that_cannot_be_written_keeps_nothing(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FRUGAL_LAUNCHER_CACHE", str(tmp_path / "file"))
    kept.write("tests", "key", 1)
    assert kept.read("tests", "key") is None


def test_the_folder_is_the_named_one_else_the_users(monkeypatch, tmp_path):
    assert str(kept.cache_folder()) == os.environ["FRUGAL_LAUNCHER_CACHE"]
    monkeypatch.delenv("FRUGAL_LAUNCHER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kept.cache_folder() == tmp_path / "frugal-launcher"


def test_a_fingerprint_is_of_every_part_whatever_their_order():
    assert kept.fingerprint(a=1, b=[2]) == kept.fingerprint(b=[2], a=1)
    assert kept.fingerprint(a=1) != kept.fingerprint(a=2)
    assert kept.fingerprint(a=1) != kept.fingerprint(b=1)
