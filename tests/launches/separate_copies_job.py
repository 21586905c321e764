"""Two processes that Accelerate joins by gloo without averaging gradients; the launcher must refuse them."""

from __future__ import annotations

import sys
from pathlib import Path

from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from launcher.errors import LaunchError
from launcher.processes import start_accelerator

if __name__ == "__main__":
    Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
    try:
        start_accelerator("no")
    except LaunchError as error:
        print(error)
        raise SystemExit(2) from None
