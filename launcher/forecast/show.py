"""A forecast as a person reads it."""

from __future__ import annotations

from launcher.devices import Device
from launcher.forecast.peak import Forecast
from launcher.forecast.tracker import ACTIVATIONS, TEMPORARIES
from launcher.screen import Screen
from launcher.units import MIB, format_bytes

# Driver context and library workspaces on a card. Assumed, not measured: 300 to 600 MiB are seen, by card and driver.
CONTEXT_BYTES = 450 * MIB
ROWS = ("weights", "gradients", "optimizer", ACTIVATIONS, TEMPORARIES)


def show_forecast(screen: Screen, forecast: Forecast, device: Device) -> None:
    """Phases by rows, then what it comes to, then whether the card has as much."""
    rows = [
        [phase, *(f"{size / MIB:,.0f}" for size in (peak.size, *(peak.rows.get(row, 0) for row in ROWS)))]
        for phase, peak in forecast.phases.items()
    ]
    screen.table(f"Forecast for {device.name}, in MiB", ["phase", "peak", *ROWS], rows)
    operators = ", ".join(name.removeprefix("aten.") for name in list(forecast.peak.operators)[:3])
    screen.say(f"fullest in {forecast.peak_phase}; most of activations and temporaries by {operators}")
    if forecast.allocated is None or forecast.reserved is None:
        screen.say(f"tensors {format_bytes(forecast.peak.size)}; the process holds its libraries besides")
        return
    total = forecast.reserved + CONTEXT_BYTES
    screen.say(
        f"allocated {format_bytes(forecast.allocated)}, reserved {format_bytes(forecast.reserved)}, "
        f"device total {format_bytes(total)} with {format_bytes(CONTEXT_BYTES)} assumed for CUDA's context"
    )
    if device.memory is not None:
        verdict = "fits into" if total <= device.memory else "DOES NOT FIT into"
        screen.say(f"{verdict} the {format_bytes(device.memory)} of {device.name}")
