"""Which tensors live in the host's memory beside a card, and which copies cross the link between the two."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_on_host: ContextVar[bool] = ContextVar("on_host", default=False)


@contextmanager
def on_host() -> Iterator[None]:
    """Tensors made inside are host memory, copies made inside are transfers.

    Said and not seen: where a run is followed without a card, both sides are tensors of the CPU.
    """
    token = _on_host.set(True)
    try:
        yield
    finally:
        _on_host.reset(token)


def is_on_host() -> bool:
    """Whether `on_host` is entered, in this thread."""
    return _on_host.get()
