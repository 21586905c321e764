"""What a person sees: bars and tables on a terminal, plain lines in a batch system's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

MOST_LETTERS = 10_000  # in a line of a table
LINES_PER_RUN = 20  # progress lines in a log that is no terminal


class Screen:
    """Speaks on the main process only: what the others would say is the same."""

    def __init__(self, *, main: bool) -> None:
        self.console = Console(quiet=not main, highlight=False, soft_wrap=True)
        self.main = main

    def show_logs(self) -> None:
        """The launcher's own log lines appear above the bar."""
        handler = _Handler(self.console if self.main else Console(stderr=True, highlight=False))
        handler.setLevel(logging.INFO if self.main else logging.ERROR)
        logger = logging.getLogger("launcher")
        logger.handlers = [handler]
        logger.setLevel(logging.INFO)
        logger.propagate = False

    @contextmanager
    def bar(self, name: str, total: int) -> Iterator[Bar]:
        """A progress bar, or on no terminal a line now and then."""
        if not self.main or not self.console.is_terminal:
            yield Bar(name, total, self.main)
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[facts]}"),
        )
        with Progress(*columns, console=self.console) as progress:
            yield Bar(name, total, True, progress, progress.add_task(name, total=total, facts=""))

    def table(self, title: str, columns: list[str], rows: list[list[str]]) -> None:
        """Columns of numbers to the right; only the last column is broken into lines. Nothing in it is markup."""
        table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1))
        for number, column in enumerate(columns):
            are_numbers = all(row[number].removeprefix("-")[:1].isdigit() for row in rows)
            texts = [Text(text) for text in (column, *(row[number] for row in rows))]
            is_last = number == len(columns) - 1
            # No narrower than its longest word: a terminal that is narrower breaks lines, rich would leave words out.
            least = max(self.console.measure(text).minimum if is_last else text.cell_len for text in texts)
            justify: JustifyMethod = "right" if are_numbers else "left"
            table.add_column(texts[0], justify=justify, no_wrap=not is_last, min_width=least)
        for row in rows:
            table.add_row(*map(Text, row))
        least = self.console.measure(table, options=self.console.options.update_width(MOST_LETTERS)).minimum
        if least > self.console.width:
            table.width = least
        self.console.print(table, crop=False)

    def say(self, text: str) -> None:
        """A line as it stands: nothing in it is markup."""
        self.console.print(text, markup=False)


class Bar:
    """Advances once an update."""

    def __init__(
        self, name: str, total: int, main: bool, progress: Progress | None = None, task: TaskID | None = None
    ) -> None:
        self.name, self.total, self.main, self.done = name, total, main, 0
        self.progress, self.task = progress, task

    def advance(self, facts: str) -> None:
        self.done += 1
        if self.progress is not None and self.task is not None:
            self.progress.update(self.task, advance=1, facts=facts)
        elif self.main and (self.done == self.total or self.done % max(1, self.total // LINES_PER_RUN) == 0):
            logging.getLogger("launcher").info("%s %d/%d: %s", self.name, self.done, self.total, facts)


class _Handler(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console
        self.setFormatter(logging.Formatter(None if console.is_terminal else "%(asctime)s %(message)s", "%H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        style = "yellow" if record.levelno >= logging.WARNING else None
        self.console.print(self.format(record), markup=False, style=style)
