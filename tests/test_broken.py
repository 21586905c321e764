"""Every folder under tests/broken/recipe and tests/broken/data is a mistake, with the whole message that it gives.

`recipe` holds what is found before anything is loaded, `data` what only loading shows. Where a folder has
arguments.txt, its lines follow the recipe on the command line. A new case: write the files, run the test, read the
message as a newcomer would, and save it as expected.txt.
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher import cli
from launcher.check import check
from launcher.devices import CPU
from launcher.machine import Machine

BROKEN = Path(__file__).parent / "broken"


def cases(group: str) -> list[str]:
    return sorted(folder.name for folder in (BROKEN / group).iterdir())


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cases where they may be written to; beside them the facts of a model, but no model."""
    return shutil.copytree(BROKEN, tmp_path_factory.mktemp("broken") / "cases")


@pytest.fixture(scope="session")
def copy_with_model(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """The same beside a model that loads."""
    folder = shutil.copytree(BROKEN, tmp_path_factory.mktemp("broken") / "cases")
    shutil.copytree(tiny_model, folder / "model", dirs_exist_ok=True)
    return folder


@pytest.fixture
def plain_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process on a CPU, wherever the test runs."""
    for name in ("WORLD_SIZE", "RANK", "ACCELERATE_USE_CPU", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("launcher.job.look", lambda: Machine(CPU, 0))


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    yield
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)


def told(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Exit code and standard error of one case, started in its own folder."""
    monkeypatch.chdir(folder)
    extra = folder / "arguments.txt"
    arguments = extra.read_text(encoding="utf-8").splitlines() if extra.exists() else []
    code = cli.worker(["recipe.yaml", *arguments])
    message = capsys.readouterr().err
    for path, name in ((folder, "<folder>"), (folder.parents[1], "<broken>"), (Path(sys.prefix), "<python>")):
        message = message.replace(str(path.resolve()), name)
    return code, message


@pytest.mark.usefixtures("plain_machine")
@pytest.mark.parametrize("name", cases("recipe"))
def test_a_broken_recipe_says_where_what_and_what_to_do(
    name: str, copy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, message = told(copy / "recipe" / name, capsys, monkeypatch)
    assert message == (BROKEN / "recipe" / name / "expected.txt").read_text(encoding="utf-8")
    assert code == 2


@pytest.mark.usefixtures("plain_machine", "no_network")
@pytest.mark.parametrize("name", cases("data"))
def test_broken_data_or_a_broken_model_says_where_what_and_what_to_do(
    name: str, copy_with_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, message = told(copy_with_model / "data" / name, capsys, monkeypatch)
    assert message == (BROKEN / "data" / name / "expected.txt").read_text(encoding="utf-8")
    assert code == 2


def test_the_recipe_that_all_of_them_are_made_from_has_no_problem(copy: Path) -> None:
    assert check(copy / "good.yaml").recipe.name == "good"


def test_the_console_command_says_the_same_as_a_started_process(
    copy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy / "recipe" / "misspelled_key"
    _, message = told(folder, capsys, monkeypatch)
    monkeypatch.setattr(sys, "argv", ["launcher", "check", "recipe.yaml"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code, capsys.readouterr().err) == (2, message)


@pytest.mark.parametrize(("place", "reason"), [("no.yaml", "No such file or directory"), (".", "Is a directory")])
def test_a_recipe_that_is_no_file_is_named(
    place: str, reason: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.worker([place]) == 2
    assert capsys.readouterr().err == f"{place}: 1 problem\n  cannot be read: {reason}\n"
