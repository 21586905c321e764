from pathlib import Path

import pytest

import launcher
from launcher.data_source import find_data, peek_columns
from launcher.sources import SourceError, resolve


def test_a_path_starts_from_the_recipes_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipes = tmp_path / "recipes"
    recipes.mkdir()
    (recipes / "data.csv").touch()
    monkeypatch.chdir(tmp_path)
    assert resolve("data.csv", recipes) == ("path", str(recipes / "data.csv"))


def test_a_path_from_the_root_stays(tmp_path: Path) -> None:
    assert resolve(str(tmp_path), Path("/nowhere")) == ("path", str(tmp_path))


def test_a_path_may_start_from_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model").mkdir()
    assert resolve("~/model", Path("/nowhere")) == ("path", str(tmp_path / "model"))


@pytest.mark.parametrize("source", ["bert-base-uncased", "sentence-transformers/all-MiniLM-L6-v2"])
def test_what_is_not_here_and_looks_like_one_is_a_hub_id(source: str, tmp_path: Path) -> None:
    assert resolve(source, tmp_path) == ("hub", source)


def test_a_folder_that_is_here_comes_before_a_hub_id_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "bert").mkdir()
    assert resolve("bert", tmp_path) == ("path", str(tmp_path / "bert"))


@pytest.mark.parametrize("source", ["data.csv", "./data", "../data", "/data", "a/b/c", "data/train.jsonl", "my data"])
def test_what_is_neither_here_nor_a_hub_id_is_refused(source: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is not there"):
        resolve(source, tmp_path)


def test_a_place_inside_a_package_is_found_without_importing_it() -> None:
    root = Path(launcher.__file__).parent
    assert resolve("package://launcher/strategies", Path("/nowhere")) == ("path", str(root / "strategies"))


@pytest.mark.parametrize("inside", ["..", "../tests", "strategies/../../tests", "/etc"])
def test_a_place_inside_a_package_stays_inside(inside: str) -> None:
    with pytest.raises(SourceError, match="leaves the package"):
        resolve(f"package://launcher/{inside}", Path("/nowhere"))


def test_the_files_of_a_folder_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.csv", "a.CSV", "c.csv"):
        (tmp_path / name).write_text("text,label\n", encoding="utf-8")
    source = find_data(str(tmp_path), tmp_path)
    assert (source.format, [path.name for path in source.files]) == ("csv", ["a.CSV", "b.csv", "c.csv"])


def test_folders_of_text_files_are_classes(tmp_path: Path) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "1.txt").write_text("fine", encoding="utf-8")
    (tmp_path / "README.md").touch()
    source = find_data(str(tmp_path), tmp_path)
    assert source.format == "text_folders"
    assert peek_columns(source, "utf-8") == ["text", "label"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", '\ufefftext,"my, label"\nx,1\n'),
        ("a.tsv", "text\tmy, label\nx\t1\n"),
        ("a.jsonl", '{"text": "x", "my, label": 1}\n{"broken\n'),
        ("a.json", '[{"text": "x", "my, label": 1}]'),
    ],
)
def test_columns_are_known_from_the_start_of_a_file(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert peek_columns(find_data(name, tmp_path), "utf-8") == ["text", "my, label"]


def test_columns_of_a_broken_file_are_not_known(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    (tmp_path / "a.json").write_text('[{"text": ', encoding="utf-8")
    assert [peek_columns(find_data(name, tmp_path), "utf-8") for name in ("a.parquet", "a.json")] == [None, None]
