"""A plan that was found: what it sets, what it takes, how it was reached and what was turned down."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from launcher.calibration import Calibration
from launcher.cutter import CostModel
from launcher.devices import Device
from launcher.forecast.result import Forecast
from launcher.strategies import ALL, Strategy


@dataclass(frozen=True)
class Step:
    """One rung of the ladder: bytes on the device with the context, and predicted seconds per epoch."""

    name: str
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Proposal:
    """Sizes in bytes. `total` is what counts against the budget: tensors on a CPU, the whole process on a card."""

    device: Device
    budget: int
    margin: int
    context: int
    total: int
    strategies: dict[str, dict[str, Any]]
    cost: CostModel
    forecast: Forecast
    calibration: Calibration
    seconds_per_epoch: float
    updates_per_epoch: int
    micro_batches_per_update: float
    ladder: tuple[Step, ...]
    rejected: tuple[str, ...]

    def chosen(self) -> dict[str, Strategy]:
        """The strategies that it sets beside the recipe's own."""
        return {cls.key: cls.model_validate(self.strategies[cls.key]) for cls in ALL if cls.key in self.strategies}

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Proposal:
        return cls(
            **content
            | {
                "device": Device.from_json(content["device"]),
                "cost": CostModel(**content["cost"]),
                "forecast": Forecast.from_json(content["forecast"]),
                "calibration": Calibration(**content["calibration"]),
                "ladder": tuple(Step(**step) for step in content["ladder"]),
                "rejected": tuple(content["rejected"]),
            }
        )
