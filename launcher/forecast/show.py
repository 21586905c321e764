"""A forecast as a person reads it."""

from __future__ import annotations

from launcher.devices import Device
from launcher.forecast.assumed import CONTEXT_BYTES
from launcher.forecast.result import HOST, ROWS, Forecast
from launcher.screen import Screen
from launcher.units import MIB, format_bytes


def show_forecast(screen: Screen, forecast: Forecast, device: Device) -> None:
    """Phases by rows, then what it comes to, then whether the card has as much."""
    names = [name for name in ROWS if name != HOST or any(name in peak.rows for peak in forecast.phases.values())]
    rows = [
        [phase, *(f"{size / MIB:,.0f}" for size in (peak.size, *(peak.rows.get(name, 0) for name in names)))]
        for phase, peak in forecast.phases.items()
    ]
    screen.table(f"Forecast for {device.name}, in MiB", ["phase", "peak", *names], rows)
    operators = ", ".join(name.removeprefix("aten.") for name in list(forecast.peak.operators)[:3])
    screen.say(f"fullest in {forecast.peak_phase}; most of activations and temporaries by {operators}")
    if forecast.allocated is None or forecast.reserved is None:
        screen.say(f"tensors {format_bytes(forecast.peak.size)}; the process holds its libraries besides")
        return
    if forecast.host_bytes:
        screen.say(f"in the host's memory besides {format_bytes(forecast.host_bytes)}")
    total = forecast.reserved + CONTEXT_BYTES
    screen.say(
        f"allocated {format_bytes(forecast.allocated)}, reserved {format_bytes(forecast.reserved)}, "
        f"device total {format_bytes(total)} with {format_bytes(CONTEXT_BYTES)} assumed for CUDA's context"
    )
    if device.memory is not None:
        verdict = "fits into" if total <= device.memory else "DOES NOT FIT into"
        screen.say(f"{verdict} the {format_bytes(device.memory)} of {device.name}")
