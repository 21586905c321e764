"""One process of a run whose disk may lie; leaves its exit code in the current folder.

saves_job.py KEPT RECIPE [KEY=VALUE]...    KEPT: of the saves, which the disk keeps whole: "all" or "trial"
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from launcher import written_model
from launcher.cli import worker
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
    code = worker(sys.argv[2:])
    Path(f"code-{started_rank()}").write_text(str(code), encoding="utf-8")
    sys.exit(code)
