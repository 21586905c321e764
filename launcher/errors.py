"""One error tree: what a person can mend is a LauncherError and ends without a traceback."""

from collections.abc import Sequence


class LauncherError(Exception):
    """`where` names the file or the thing, `problems` says everything that is wrong with it at once."""

    exit_code = 1

    def __init__(self, where: str, problems: Sequence[str]) -> None:
        assert problems, "an error without a problem"
        self.where = where
        self.problems = tuple(problems)
        super().__init__(where, self.problems)

    def as_json(self) -> dict[str, object]:
        """Plain data, for another process or for machines."""
        return {"kind": type(self).__name__, "where": self.where, "problems": list(self.problems)}

    def __str__(self) -> str:
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        return "\n".join([f"{self.where}: {count}", *(f"  {problem}" for problem in self.problems)])


class RecipeError(LauncherError):
    """The recipe, or what it asks of this model or machine, cannot be done."""

    exit_code = 2


class DataError(LauncherError):
    """The data is missing, unreadable or not what the task needs."""

    exit_code = 2


class ModelError(LauncherError):
    """The model's files are missing, unreadable or not what the task needs."""

    exit_code = 2


class BudgetError(LauncherError):
    """Nothing that is allowed fits into the budget."""

    exit_code = 2


class ForecastError(LauncherError):
    """A run whose memory cannot be told beforehand."""


class LaunchError(LauncherError):
    """The processes that were started cannot train one model together."""

    exit_code = 2


class CheckpointError(LauncherError):
    """A saved training state is missing, unreadable, or not one that this training can go on from."""

    exit_code = 2


class SaveError(LauncherError):
    """What is trained cannot be written, or what was written is not what is trained."""

    exit_code = 2


class MemoryExceededError(LauncherError):
    """The device has less memory than the run took. `overrides` start it again with smaller micro-batches."""

    exit_code = 12  # ENOMEM: what ends with it can be started again

    def __init__(self, where: str, problems: Sequence[str], overrides: Sequence[str] = ()) -> None:
        super().__init__(where, problems)
        self.overrides = tuple(overrides)
