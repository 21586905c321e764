"""What is asked, of which model, on which machine: all that a strategy needs to judge itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.devices import Device
from launcher.machine import Machine, look
from launcher.model_source import ModelFacts

if TYPE_CHECKING:
    from launcher.recipe import Recipe


@dataclass(frozen=True)
class Job:
    """`model` is None for a model that is still on a hub; `processes` train together, on `nodes` computers.

    `target` is a device that is not here; `path` and `overrides` are where the recipe was read from.
    """

    recipe: Recipe
    model: ModelFacts | None
    processes: int
    target: Device | None = None
    path: Path = Path()
    overrides: tuple[str, ...] = ()
    nodes: int = 1

    @property
    def device(self) -> Device:
        """What each process trains on."""
        return self.target or self.machine.device

    @cached_property
    def machine(self) -> Machine:
        """Looked at when first asked: it takes a torch import, which most recipes do without."""
        return look()
