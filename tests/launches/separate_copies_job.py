"""Two processes that Accelerate joins by gloo without averaging gradients; the launcher must refuse them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from launcher.errors import LaunchError
from launcher.processes import start_form
from launcher.settings import Settings

if __name__ == "__main__":
    Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
    try:
        training = SimpleNamespace(batch_size=2, max_grad_norm=1.0)
        start_form(SimpleNamespace(settings=Settings(), processes=2, recipe=SimpleNamespace(training=training)))
    except LaunchError as error:
        print(error)
        raise SystemExit(2) from None
