"""Processes go on together, or stop together with the same error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from launcher.errors import LauncherError

if TYPE_CHECKING:
    from accelerate import Accelerator


@contextmanager
def together(accelerator: Accelerator) -> Iterator[None]:
    """Every process comes here; a LauncherError inside on any of them is raised on all: the first process's.

    Nothing inside may wait for another process: the one that it waits for may have left already.
    """
    from accelerate.utils import gather_object

    own: LauncherError | None = None
    try:
        yield
    except LauncherError as error:
        own = error
    first = next((error for error in gather_object([own]) if error is not None), None)
    if first is not None:
        raise first
