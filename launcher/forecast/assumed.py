"""What a forecast assumes where nothing has been measured."""

from launcher.units import MIB

# Driver context and library workspaces on a card. Assumed, not measured: 300 to 600 MiB are seen, by card and driver.
CONTEXT_BYTES = 450 * MIB
# Kept free for what a forecast misses. CPU: the largest error seen is 0.6 % (bench/forecast_accuracy.py); a card's
# allocator is replayed by its rules and was compared with three published counters only.
MARGINS = {"cpu": 0.02, "cuda": 0.04}
