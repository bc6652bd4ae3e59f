"""The ids of sessions, and SESSION_ALIVE, which a session reports at intervals."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from producers import session_reports
from producers.session_reports import SessionReports
from streaming.core.activation.session_ids import program_of
from streaming.kafka import clients
from streaming.kafka.clients import Cluster
from streaming.wire.session_ids import SESSION_ID_VARIABLE, new_session_id
from tests.support.waiting import wait_until


class FakeProducer:
    """A producer that fails twice, then accepts everything."""

    def __init__(self, _config: dict[str, Any]) -> None:
        self.errors: Iterator[Exception] = iter(
            [BufferError("Local: Queue full"), KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))]
        )
        self.taken: list[bytes] = []

    def produce(self, _topic: str, value: bytes, _key: bytes, on_delivery: object) -> None:  # noqa: ARG002
        for error in self.errors:
            raise error
        self.taken.append(value)

    def poll(self, _timeout_s: float) -> None:
        pass

    def flush(self, _timeout_s: float) -> int:
        return 0

    def purge(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_passing_error_does_not_silence_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "Producer", FakeProducer)
    monkeypatch.setattr(session_reports, "SESSION_ALIVE_INTERVAL_S", 0.01)
    reports = SessionReports(Cluster("127.0.0.1:1"), "queue-receives", "orders", "s")
    producer: Any = reports._reporter._producer
    wait_until(lambda: len(producer.taken) >= 2, 10, "reports after the errors")
    reports.close()
    assert b"SESSION_ALIVE" in producer.taken[0]
    assert b"SESSION_ENDED" in producer.taken[-1]


def test_the_sessions_of_a_program_are_distinct_and_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SESSION_ID_VARIABLE, "program/1")
    first, second = new_session_id(), new_session_id()
    assert first != second
    assert program_of(first) == program_of(second) == "program/1"


@pytest.mark.parametrize("environment", [None, ""])
def test_without_a_program_a_session_stands_alone(monkeypatch: pytest.MonkeyPatch, environment: str | None) -> None:
    monkeypatch.delenv(SESSION_ID_VARIABLE, raising=False)
    if environment is not None:
        monkeypatch.setenv(SESSION_ID_VARIABLE, environment)
    first, second = new_session_id(), new_session_id()
    assert first != second
    assert program_of(first) == first
