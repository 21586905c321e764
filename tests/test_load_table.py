"""load_table, and what read_data makes of its rows."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from launcher.data import RawData, read_data
from launcher.data_source import find_data, peek_columns
from launcher.errors import DataError
from launcher.load_table import load_table
from launcher.read_recipe import read_recipe
from launcher.recipe import Data

GOOD = Path(__file__).parent / "broken" / "good.yaml"
ROWS = [("NA", "1"), ("null", "0"), ("None", "1"), ("a, b", "0"), ("007", "1")]


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., RawData]:
    """What the files of `tmp_path` give under the good recipe with these overrides."""

    def go(train: str, *overrides: str) -> RawData:
        return read_data(read_recipe(GOOD, [f"data.train={tmp_path / train}", *overrides])[0])

    return go


def write_rows(path: Path, rows: list[tuple[object, object]] | list[tuple[str, str]]) -> None:
    lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
    path.write_text("\n".join(lines), encoding="utf-8")


def write_csv(path: Path, rows: list[tuple[str, str]]) -> None:
    path.write_text("text,label\n" + "".join(f'"{text}",{label}\n' for text, label in rows), encoding="utf-8")


def write_as(name: str, path: Path) -> None:
    if name.endswith(".csv"):
        write_csv(path / name, ROWS)
    elif name.endswith(".tsv"):
        lines = ["text\tlabel", *("\t".join(row) for row in ROWS)]
        (path / name).write_text("\n".join(lines), encoding="utf-8")
    elif name.endswith(".json"):
        content = [{"text": text, "label": label} for text, label in ROWS]
        (path / name).write_text(json.dumps(content), encoding="utf-8")
    elif name.endswith(".jsonl"):
        write_rows(path / name, ROWS)
    elif name.endswith(".parquet"):
        parquet.write_table(
            pa.table({"text": [row[0] for row in ROWS], "label": [row[1] for row in ROWS]}), path / name
        )
    else:
        for index, (text, label) in enumerate(ROWS):
            (path / name / label).mkdir(parents=True, exist_ok=True)
            (path / name / label / f"{index}.txt").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "rows.json", "rows.jsonl", "rows.parquet", "folders"])
def test_every_format_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    write_as(name, tmp_path)
    table = load_table(find_data(name, tmp_path), Data(train=name), "train")
    assert sorted(zip(table["text"], table["label"], strict=True)) == sorted(ROWS)


def test_the_files_of_a_folder_follow_each_other(tmp_path: Path, read: Callable[..., RawData]) -> None:
    write_csv(tmp_path / "b.csv", [("third", "1")])
    write_csv(tmp_path / "a.csv", [("first", "1"), ("second", "0")])
    assert list(read(".").train.rows["text"]) == ["first", "second", "third"]


def test_a_file_that_was_changed_is_read_again(tmp_path: Path, read: Callable[..., RawData]) -> None:
    for text in ("before", "after!"):  # of one length, in one second
        write_csv(tmp_path / "rows.csv", [(text, "1"), ("x", "0")])
        assert read("rows.csv").train.rows["text"][0] == text


def test_rows_without_text_or_label_are_dropped_and_counted(tmp_path: Path, read: Callable[..., RawData]) -> None:
    write_csv(tmp_path / "rows.csv", [("good", "1"), ("", "1"), ("  ", "0"), ("bad", ""), ("bad", "0")])
    raw = read("rows.csv")
    assert list(raw.train.rows["text"]) == ["good", "bad"]
    assert raw.train.numbers.tolist() == [1, 5]
    assert raw.notes == ("3 rows of 5 dropped: 2 without 'text', 1 without 'label'",)


@pytest.mark.parametrize(
    "labels", [["1", "0", "10"], [1, 0, 10], [1.0, 0.0, 10.0], ["1.0", "0.0", "10.0"], [" 1", "0 ", "10"]]
)
def test_labels_are_equal_however_they_are_written(
    labels: list[object], tmp_path: Path, read: Callable[..., RawData]
) -> None:
    write_rows(tmp_path / "rows.jsonl", [("a", label) for label in labels])
    assert read("rows.jsonl").labels == ("0", "1", "10")  # by number, not by letter


def test_words_for_labels_stand_in_the_order_of_their_letters(tmp_path: Path, read: Callable[..., RawData]) -> None:
    write_csv(tmp_path / "rows.csv", [("a", "so so"), ("b", "good"), ("c", "bad")])
    assert read("rows.csv").labels == ("bad", "good", "so so")


def test_class_labels_keep_their_own_names_and_order(tmp_path: Path, read: Callable[..., RawData]) -> None:
    from datasets import ClassLabel, Dataset, Features, Value

    features = Features({"text": Value("string"), "label": ClassLabel(names=["so so", "good", "bad"])})
    Dataset.from_dict({"text": ["a", "b"], "label": [2, 0]}, features=features).to_parquet(
        str(tmp_path / "rows.parquet")
    )
    raw = read("rows.parquet")
    assert raw.labels == ("so so", "good", "bad")
    assert raw.train.values == ["bad", "so so"]


def test_validation_texts_that_stand_in_training_are_counted(tmp_path: Path, read: Callable[..., RawData]) -> None:
    write_csv(tmp_path / "rows.csv", [("good", "1"), ("bad", "0")])
    write_csv(tmp_path / "held.csv", [("good", "1"), ("fine", "1"), ("good", "0")])
    raw = read("rows.csv", f"data.validation.file={tmp_path / 'held.csv'}")
    assert raw.notes == ("2 validation texts of 3 stand in the training data too: the score is too good by them",)


def test_a_share_for_validation_takes_rows_away_from_training(tmp_path: Path, read: Callable[..., RawData]) -> None:
    write_csv(tmp_path / "rows.csv", [(f"text {i}", str(i % 2)) for i in range(20)])
    raw = read("rows.csv", "data.validation.share=0.2")
    assert raw.validation is not None
    assert sorted(raw.validation.values) == ["0", "0", "1", "1"]
    assert sorted([*raw.train.numbers, *raw.validation.numbers]) == list(range(1, 21))


def test_max_rows_keeps_the_shares_of_the_classes_and_says_so(tmp_path: Path, read: Callable[..., RawData]) -> None:
    write_csv(tmp_path / "rows.csv", [(f"text {i}", "rare" if i % 4 == 0 else "often") for i in range(40)])
    raw = read("rows.csv", "data.max_rows=8")
    assert sorted(raw.train.values) == ["often"] * 6 + ["rare"] * 2
    assert raw.notes == ("max_rows: 8 of 40 rows are used",)


@pytest.mark.parametrize("name", ["rows.csv", "folders"])
def test_bytes_of_another_encoding_are_read_when_it_is_named(
    name: str, tmp_path: Path, read: Callable[..., RawData]
) -> None:
    if name == "rows.csv":
        (tmp_path / name).write_bytes("text,label\n房间很大,1\n吵,0\n".encode("gb18030"))
    for label, text in ("1", "房间很大"), ("0", "吵"):
        (tmp_path / "folders" / label).mkdir(parents=True)
        (tmp_path / "folders" / label / "1.txt").write_bytes(text.encode("gb18030"))
    assert set(read(name, "data.encoding=gb18030").train.rows["text"]) == {"房间很大", "吵"}


@pytest.mark.parametrize("name", ["rows.csv", "folders"])
def test_replaced_bytes_are_counted(name: str, tmp_path: Path, read: Callable[..., RawData]) -> None:
    (tmp_path / "rows.csv").write_bytes(b"text,label\nsch\xf6n,1\nloud,0\n")
    for label, content in ("1", b"sch\xf6n"), ("0", b"loud"):
        (tmp_path / "folders" / label).mkdir(parents=True)
        (tmp_path / "folders" / label / "1.txt").write_bytes(content)
    raw = read(name, "data.encoding_errors=replace")
    assert raw.notes == ("1 row with bytes that are not in their encoding; a mark stands for each",)


def test_a_csv_that_a_spreadsheet_wrote_is_read(tmp_path: Path, read: Callable[..., RawData]) -> None:
    content = '"text","my\r\nlabel"\r\n"two\r\nlines",007\r\n"good",1\r\n'
    (tmp_path / "rows.csv").write_bytes(b"\xef\xbb\xbf" + content.encode())
    path = find_data("rows.csv", tmp_path)
    assert peek_columns(path, "utf-8") == ["text", "my\r\nlabel"]
    raw = read("rows.csv", 'data.columns={label: "my\\r\\nlabel"}')
    assert list(raw.train.rows["text"]) == ["two\r\nlines", "good"]
    assert raw.train.values == ["007", "1"]


def test_a_column_without_a_name_is_left_alone(tmp_path: Path, read: Callable[..., RawData]) -> None:
    (tmp_path / "rows.csv").write_text(",text,label\n0,good,1\n1,bad,0\n", encoding="utf-8")  # as pandas saves it
    assert list(read("rows.csv").train.rows["text"]) == ["good", "bad"]


def test_a_text_may_be_longer_than_the_csv_module_likes(tmp_path: Path, read: Callable[..., RawData]) -> None:
    write_csv(tmp_path / "rows.csv", [("long " * 50_000, "1"), ("short", "0")])
    assert [len(text) for text in read("rows.csv").train.rows["text"]] == [250_000, 5]


def test_files_of_other_columns_are_refused_in_every_format(tmp_path: Path, read: Callable[..., RawData]) -> None:
    parquet.write_table(pa.table({"text": ["a"], "label": ["1"]}), tmp_path / "a.parquet")
    parquet.write_table(pa.table({"text": ["a"], "stars": [5]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match="its files do not have the same columns; name one file"):
        read(".")


def test_hotel_reviews_lose_the_one_row_without_a_text(shared: Path) -> None:
    overrides = [f"data.train={shared / 'data' / 'hotel_reviews.csv'}", "data.columns.text=review"]
    raw = read_data(read_recipe(GOOD, overrides)[0])
    assert raw.notes == ("1 row of 7,766 dropped: 1 without 'review'",)
    assert raw.train.values.count("1") == 5322


def test_sentence_pairs_have_two_texts_a_row(shared: Path) -> None:
    columns = "{text: sentence1, text_pair: sentence2}"
    overrides = [f"data.train={shared / 'data' / 'sentence_pairs.jsonl'}", f"data.columns={columns}"]
    raw = read_data(read_recipe(GOOD, [*overrides, "data.max_rows=50"])[0])
    assert raw.train.rows.column_names == ["text", "text_pair"]
    assert raw.labels == ("0", "1")


def write_class_labels(path: Path, labels: list[int]) -> None:
    from datasets import ClassLabel, Dataset, Features, Value

    features = Features({"text": Value("string"), "label": ClassLabel(names=["neg", "pos"])})
    texts = [f"text {i}" for i in range(len(labels))]
    Dataset.from_dict({"text": texts, "label": labels}, features=features).to_parquet(str(path))


def test_the_class_label_minus_one_means_that_there_is_none(tmp_path: Path, read: Callable[..., RawData]) -> None:
    write_class_labels(tmp_path / "rows.parquet", [1, -1, 0])
    raw = read("rows.parquet")
    assert raw.train.values == ["pos", "neg"]
    assert raw.notes == ("1 row of 3 dropped: 1 without 'label'",)


def test_validation_labels_that_a_class_label_does_not_name_are_refused(
    tmp_path: Path, read: Callable[..., RawData]
) -> None:
    write_class_labels(tmp_path / "rows.parquet", [1, 0])
    write_csv(tmp_path / "held.csv", [("good", "pos"), ("bad", "1")])
    with pytest.raises(DataError, match="labels that no training row has: '1'; train on rows with them"):
        read("rows.parquet", f"data.validation.file={tmp_path / 'held.csv'}")


def test_max_rows_gives_so_many_rows_however_small_the_classes(tmp_path: Path, read: Callable[..., RawData]) -> None:
    write_csv(tmp_path / "rows.csv", [(f"text {i}", f"class {i // 2}") for i in range(39)])
    assert len(read("rows.csv", "data.max_rows=38").train.values) == 38


@pytest.mark.parametrize("labels", [["--5", "5"], ["5-", "5"], ["-", "1"]])
def test_labels_that_are_nearly_numbers_stay_words(
    labels: list[str], tmp_path: Path, read: Callable[..., RawData]
) -> None:
    write_csv(tmp_path / "rows.csv", [("a", label) for label in labels])
    assert read("rows.csv").labels == tuple(sorted(labels))


def test_numbers_written_in_several_ways_have_one_order(tmp_path: Path, read: Callable[..., RawData]) -> None:
    """The order of a set, which decides between equals, is another in each process."""
    labels = [f"{'0' * zeros}1" for zeros in range(12)]
    write_csv(tmp_path / "rows.csv", [("a", label) for label in labels])
    assert read("rows.csv").labels == tuple(sorted(labels))


def test_text_folders_are_read_whatever_the_ending_s_case_and_hidden_ones_are_not(
    tmp_path: Path, read: Callable[..., RawData]
) -> None:
    texts = {"good/a.txt": b"\xef\xbb\xbffine", "bad/B.TXT": b"loud", ".ipynb_checkpoints/a.txt": b"copy"}
    for name, content in texts.items():
        (tmp_path / "folders" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folders" / name).write_bytes(content)
    raw = read("folders")
    assert dict(zip(raw.train.rows["text"], raw.train.values, strict=True)) == {"fine": "good", "loud": "bad"}
