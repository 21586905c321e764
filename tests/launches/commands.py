"""Starting the product as people start it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN = str(ROOT / "launcher" / "run.py")
ACCELERATE = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"]
QUIET = ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
TWO = ["--multi_gpu", "--num_processes", "2", "--main_process_port", "0", *QUIET]
ONE = ["--num_processes", "1", *QUIET]
LIMIT_SECONDS = 600  # for machines that are shared; most starts take 10


def start(
    command: list[str], *, cwd: Path, limit: float = LIMIT_SECONDS, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs to the end; HF libraries stay offline, and no accelerate config of this machine takes part."""
    return subprocess.run(
        command,
        cwd=cwd,
        env=clean_environment(cwd) | environment,
        text=True,
        capture_output=True,
        timeout=limit,
    )


def clean_environment(home: Path) -> dict[str, str]:
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("ACCELERATE_", "MASTER_", "PYTEST_", "PYTHONPATH"))
    }
    return kept | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": str(home / "hf")}
