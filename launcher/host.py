"""Marks copies that go between the device and the host, so that a forecast on one device can tell them apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ON_HOST: ContextVar[bool] = ContextVar("on_host", default=False)


@contextmanager
def on_host() -> Iterator[None]:
    """Inside, tensors are made in the host's memory."""
    token = _ON_HOST.set(True)
    try:
        yield
    finally:
        _ON_HOST.reset(token)


def is_on_host() -> bool:
    return _ON_HOST.get()
