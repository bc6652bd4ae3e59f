"""Errors have Kafka's words, and not the form in which confluent-kafka prints an exception."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from producers.session_reports import SessionReports
from streaming.cli.command_sender import send_commands
from streaming.errors import UserError
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import TransactionAbortedError
from streaming.kafka.last_records import last_records
from streaming.kafka.transactions import TransactionalProducer

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
