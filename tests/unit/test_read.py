"""The command `read`, with a reader that needs no Kafka."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Self

import pytest
from typer.testing import CliRunner, Result

from producers import reader as readers
from streaming.cli.main import app


class FakeReader:
    """A reader of a queue with some messages."""

    def __init__(self, messages: list[bytes]) -> None:
        self._messages = messages
        self.has_found_nothing = False

    @contextmanager
    def receive(self, _max_messages: int, _timeout: float) -> Iterator[list[Any]]:
        self.has_found_nothing = not self._messages
        taken, self._messages = self._messages, []
        yield [SimpleNamespace(value=message) for message in taken]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass


def read(monkeypatch: pytest.MonkeyPatch, *messages: bytes) -> Result:
    monkeypatch.setattr(readers, "QueueReader", lambda *_words, **_options: FakeReader(list(messages)))
    return CliRunner().invoke(app, ["read", "orders", "--wait", "2s"])


def test_a_reader_that_gets_no_message_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    done = read(monkeypatch)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "queue orders: no message came for this reader within 2s\n"


def test_a_reader_prints_its_messages_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    done = read(monkeypatch, b"first", b"second")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "first\nsecond\n", "")
