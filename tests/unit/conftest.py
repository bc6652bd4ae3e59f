"""Fixtures that the unit tests share."""

import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.system import documents, hints, runs

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def no_other_run(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Hides the notes that each `run` on this machine has left: sentences depend on them."""
    folder = tmp_path_factory.getbasetemp() / f"runs-{uuid.uuid4()}"
    monkeypatch.setattr(runs, "folder", lambda: folder)


@pytest.fixture(autouse=True)
def documents_of_the_checkout(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Names the same documents in sentences of the source and of an installed package."""
    if "test_documents" not in request.module.__name__:
        monkeypatch.setattr(documents, "_FOLDER", Path(__file__).parents[2] / "docs")


@pytest.fixture
def kept_signals() -> Iterator[None]:
    """Restores the handlers of signals. A program that a signal has ended ignores further ones, as do its children."""
    handlers = [signal.getsignal(number) for number in _NUMBERS]
    yield
    for number, handler in zip(_NUMBERS, handlers, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def of_command() -> Iterator[None]:
    """Lets sentences be those of a command of `queue-activation`, and not of a program that only uses the clients."""
    hints.begin("queues", None)
    yield
    hints.forget()
