from pathlib import Path

import pytest

from launcher.errors import RecipeError
from launcher.read_recipe import in_line_order, read_recipe

GOOD = Path(__file__).parent / "broken" / "good.yaml"


def problems(*overrides: str, path: Path = GOOD) -> tuple[str, ...]:
    with pytest.raises(RecipeError) as raised:
        read_recipe(path, overrides)
    return raised.value.problems


def test_an_override_takes_the_place_of_the_files_value() -> None:
    recipe, _ = read_recipe(GOOD, ["training.learning_rate=3e-5", "strategies.max_length={tokens: 64}"])
    assert recipe.training.learning_rate == 3e-5
    assert recipe.strategies.chosen()[0].model_dump() == {"tokens": 64}


def test_null_in_an_override_takes_a_value_away() -> None:
    recipe, _ = read_recipe(GOOD, ["training.epochs=null", "training.updates=5"])
    assert (recipe.training.epochs, recipe.training.updates) == (None, 5)


def test_a_later_override_wins() -> None:
    recipe, _ = read_recipe(GOOD, ["training.seed=1", "training.seed=2"])
    assert recipe.training.seed == 2


def test_an_override_may_hold_equals_signs() -> None:
    recipe, _ = read_recipe(GOOD, ["data.columns.text=a=b"])
    assert recipe.data.columns == {"text": "a=b"}


def test_an_overridden_path_starts_from_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.csv").touch()
    monkeypatch.chdir(tmp_path)
    recipe, _ = read_recipe(GOOD, ["data.train=mine.csv"])
    assert recipe.data.train == str(tmp_path / "mine.csv")
    assert recipe.base == GOOD.parent


def test_what_is_wrong_inside_an_override_is_placed_on_the_command_line() -> None:
    # The file has these keys too, on lines that are not to blame.
    assert problems("training={batch_size: many, epochs: 1, learning_rate: 1e-4}") == (
        "command line: training.batch_size: 'many' is not a whole number",
    )


def test_an_override_fills_a_section_that_the_file_leaves_empty(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(GOOD.read_text(encoding="utf-8") + "\nstrategies:\n", encoding="utf-8")
    assert problems(path=path)[0].startswith("line 17: strategies: is empty; its keys are")
    recipe, _ = read_recipe(path, ["strategies.adafactor=true"])
    assert [strategy.key for strategy in recipe.strategies.chosen()] == ["adafactor"]


def test_a_misspelled_key_is_not_also_a_missing_one() -> None:
    assert problems("data={trian: reviews.csv}") == ("command line: data.trian: unknown key; did you mean train?",)


def test_a_name_that_is_near_none_gets_them_all() -> None:
    assert problems("memory.xyz=1") == ("command line: memory.xyz: unknown key; known: budget, allow",)


def test_whole_numbers_do_for_numbers_with_a_point() -> None:
    recipe, _ = read_recipe(GOOD, ["training.learning_rate=1", "training.epochs=2"])
    assert (recipe.training.learning_rate, recipe.training.epochs) == (1.0, 2.0)


@pytest.mark.parametrize(("size", "size_in_bytes"), [("4GB", 4 * 2**30), ("4294967296", 2**32)])
def test_a_budget_has_a_unit_or_is_in_bytes(size: str, size_in_bytes: int) -> None:
    recipe, _ = read_recipe(GOOD, [f"memory.budget={size}"])
    assert recipe.memory.budget == size_in_bytes


@pytest.mark.parametrize(("word", "chosen", "is_open"), [("true", True, False), ("false", False, False)])
def test_a_strategy_is_switched_by_true_and_false(word: str, chosen: bool, is_open: bool) -> None:
    recipe, _ = read_recipe(GOOD, [f"strategies.fast_tokenizer={word}"])
    assert bool(recipe.strategies.chosen()) is chosen
    assert recipe.strategies.is_open("fast_tokenizer") is is_open


def test_problems_stand_in_line_order_each_once() -> None:
    assert in_line_order(["line 12: b", "line 2: a", "command line: c", "line 12: b"]) == [
        "command line: c",
        "line 2: a",
        "line 12: b",
    ]
