"""What keeps a file from being written, in words."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launcher.errors import SaveError
from launcher.units import format_bytes

REMEDIES = {
    errno.ENOSPC: "free space there, or write output.folder to a larger disk",
    errno.EDQUOT: "free space in your quota, or write output.folder to another disk",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f), or write output.folder to another disk",
}
OTHERWISE = "make it a folder that can be written, or write output.folder to another one"


@contextmanager
def writing(folder: Path, needed: int) -> Iterator[None]:
    """SaveError where what runs inside cannot write into `folder`; `needed`: bytes that it is about to write."""
    try:
        yield
    # safetensors and tokenizers write in Rust and raise errors of their own, whose words alone hold the number.
    except Exception as error:
        number = error_number(error)
        if number is None:
            raise
        raise SaveError(str(folder), [reason(folder, number, needed)]) from None


def error_number(error: Exception) -> int | None:
    """The system's number for what went wrong; None where the system was not it."""
    if isinstance(error, OSError):
        return error.errno
    found = re.search(r"\(os error (\d+)\)", str(error))
    return int(found[1]) if found else None


def reason(folder: Path, number: int, needed: int) -> str:
    """Cause, bytes needed (0: few) and free, and what to do."""
    sizes = f"{format_bytes(free_bytes(folder))} free"
    if needed:
        sizes = f"{format_bytes(needed)} needed, {sizes}"
    return f"cannot be written: {os.strerror(number)} ({sizes}); {REMEDIES.get(number, OTHERWISE)}"


def free_bytes(folder: Path) -> int:
    """On the disk of `folder`, or of what is there of the way to it."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    return shutil.disk_usage(there).free
