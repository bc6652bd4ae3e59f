"""Fixtures that the unit tests share."""

import signal
from collections.abc import Iterator

import pytest

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def kept_signals() -> Iterator[None]:
    """Restores the handlers of signals. A program that a signal has ended ignores further ones, as do its children."""
    handlers = [signal.getsignal(number) for number in _NUMBERS]
    yield
    for number, handler in zip(_NUMBERS, handlers, strict=True):
        signal.signal(number, handler)
