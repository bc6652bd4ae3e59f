"""Errors have the words of Kafka and of the operating system, and not the form in which Python prints them."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from producers.session_reports import SessionReports
from streaming.cli import queue
from streaming.cli.command_sender import send_commands
from streaming.cli.conversations.endings import Ending
from streaming.cli.routing import service_commands
from streaming.errors import UserError
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import TransactionAbortedError
from streaming.kafka.last_records import last_records
from streaming.kafka.transactions import TransactionalProducer
from streaming.system.os_errors import in_words
from streaming.wire.service_commands import CreateService
from tests.support.viewed import endpoint

WORDS = "Broker: these words"
CLUSTER = Cluster("localhost:1")


class Refusing:
    """A client of which one call fails."""

    def __init__(self, call: str) -> None:
        self._call = call

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def called(*_: object, **__: object) -> int:
            if name == self._call:
                raise KafkaException(KafkaError(KafkaError.INVALID_RECORD, WORDS))
            return 0

        return called


def transact() -> None:
    with TransactionalProducer(CLUSTER).transaction():
        pass


@pytest.mark.parametrize(
    ("call", "use"),
    [
        ("init_transactions", transact),
        ("commit_transaction", transact),
        ("get_watermark_offsets", lambda: last_records(CLUSTER, "orders", 1, 1)),
        ("produce", lambda: send_commands(CLUSTER, "queue-commands", [("orders", b"{}")], "")),
        ("produce", lambda: SessionReports(CLUSTER, "queue-receives", "orders", "s").close()),
    ],
)
def test_an_error_has_kafkas_words(call: str, use: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Admin, "require_topics", lambda *_: {})
    for name in ("producer", "consumer", "admin_client"):
        monkeypatch.setattr(Cluster, name, lambda *_, **__: Refusing(call))
    with pytest.raises((UserError, TransactionAbortedError)) as raised:
        use()
    assert WORDS in str(raised.value)
    assert "KafkaError{" not in str(raised.value)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError(2, "No such file or directory", "/nix"), "/nix: No such file or directory"),
        (FileNotFoundError(2, "No such file or directory", b"/nix"), "/nix: No such file or directory"),
        (FileNotFoundError(2, "No such file or directory", Path("/nix")), "/nix: No such file or directory"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError("of Python"), "of Python"),
        (ValueError("embedded null byte"), "embedded null byte"),
    ],
    ids=repr,
)
def test_errors_of_the_operating_system_have_neither_number_nor_python(error: OSError | ValueError, words: str) -> None:
    assert in_words(error) == words


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda: service_commands.build(CreateService, database="A", service="", queue="q"), "service: Expected `str`"),
        (lambda: queue._commands("q", "CREATE_QUEUE", {}, ["=s"], []), "notification: Expected `str` of length >= 1"),
        (lambda: Ending("ERROR", 1, "x" * 4_000).statement(endpoint()), "error_text: Expected `str` of length <= 3000"),
    ],
)
def test_an_invalid_value_is_named_without_its_path_in_a_record(use: Callable[[], object], said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)) as raised:
        use()
    assert "$" not in str(raised.value)
