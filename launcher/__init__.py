"""frugal-launcher: say what to train and how big your card is."""

__version__ = "0.1.0"
