"""The run folder: what was asked, what was decided, what happened, and the model."""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from launcher.errors import RecipeError

_PACKAGES = (
    "frugal-launcher",
    "torch",
    "accelerate",
    "transformers",
    "tokenizers",
    "datasets",
    "pandas",
    "pyarrow",
    "bitsandbytes",
    "deepspeed",
    "numpy",
)


def new_run_folder(folder: Path, name: str) -> Path:
    """`folder/name`, or `name-2`, `name-3` ... where that is taken: no run writes over another."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(1, 10_000):
            run = folder / (name if number == 1 else f"{name}-{number}")
            try:
                run.mkdir()
                return run
            except FileExistsError:
                continue
    except OSError as error:
        raise RecipeError(str(folder), [f"output.folder: cannot be written: {error.strerror}"]) from None
    raise RecipeError(str(folder), [f"output.folder: ten thousand runs of the name {name} are in it"])


def write_json(path: Path, content: object) -> None:
    """Whole or not at all: to a temporary name, then renamed."""
    temporary = path.with_name(path.name + ".tmp")
    text = json.dumps(strict(content), indent=2, ensure_ascii=False, allow_nan=False)
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(path)


def append_line(path: Path, record: dict[str, Any]) -> None:
    """One JSON object a line; what is there already is never touched."""
    with path.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(strict(record), ensure_ascii=False, allow_nan=False) + "\n")


def strict(content: Any) -> Any:
    """JSON has no NaN and no infinity: null stands for them, which no other number is written as."""
    if isinstance(content, float) and not math.isfinite(content):
        return None
    if isinstance(content, dict):
        return {name: strict(value) for name, value in content.items()}
    return [strict(value) for value in content] if isinstance(content, list | tuple) else content


def replace_folder(temporary: Path, final: Path) -> None:
    """`temporary` takes the place of `final`, which exists at every moment but that of the two renames."""
    old = final.with_name(final.name + ".old")
    if final.exists():
        final.rename(old)
    temporary.rename(final)
    shutil.rmtree(old, ignore_errors=True)


def versions() -> dict[str, str]:
    """Of Python, the system and the packages that decide the numbers."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found | {"cpus": str(os.cpu_count())}
