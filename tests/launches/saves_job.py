"""One process of a run whose disk may lie; leaves its exit code in the current folder.

saves_job.py KEPT RECIPE [KEY=VALUE]...    KEPT: of the saves, which the disk keeps whole: "all" or "trial"
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from launcher import cli, written_model
from launcher.errors import LauncherError
from launcher.machine import started_rank


def damage(file: Path) -> None:
    """One bit of a model that is to be kept."""
    if file.parent.name == "model.tmp":
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)


if __name__ == "__main__":
    if sys.argv[1] == "trial":
        written_model.flush = damage
    # Before it is told: one that is not the first to tell it waits, and is ended by its launcher meanwhile.
    tell = cli.tell

    def remember(error: LauncherError) -> int:
        Path(f"code-{started_rank()}").write_text(str(error.exit_code), encoding="utf-8")
        return tell(error)

    cli.tell = remember
    sys.exit(cli.worker(sys.argv[2:]))
