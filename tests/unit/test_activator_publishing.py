"""The rows that an activator publishes: each once when it has changed, and again if Kafka did not take it."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from streaming.daemons.activator import publishing
from streaming.daemons.activator.publishing import PublishedRows
from streaming.errors import UserError
from streaming.wire.activator_rows import ActivatorRow, encode_row, key_of

ROW = ActivatorRow("orders", "activator-1", "group", "host", "/etc/a.toml")
OTHER = msgspec.structs.replace(ROW, activator="activator-2")


class Kafka:
    """A cluster and its clients: keeps what is produced, and has the records of earlier runs.

    Attributes:
        answer: The error with which it answers each record; None: it takes the record.
        refusal: The error that a check of the rights raises.
        sent: The keys and values that it has taken.
    """

    def __init__(self) -> None:
        self.answer: int | None = None
        self.refusal: UserError | None = None
        self.is_full = False
        self.problem: int | None = None
        self.sent: list[tuple[bytes, bytes | None]] = []
        self.before: list[Message] = []
        self._answers: list[Callable[[], None]] = []

    def producer(self, _settings: Any) -> "Kafka":
        return self

    def produce(self, _topic: str, value: bytes | None, key: bytes, on_delivery: Any) -> None:
        if self.is_full:
            raise BufferError
        if self.problem is not None and value is not None:
            raise KafkaException(KafkaError(self.problem))
        error = None if self.answer is None else KafkaError(self.answer)
        if error is None:
            self.sent.append((key, value))
        self._answers.append(lambda: on_delivery(error, None))

    def poll(self, _timeout_s: float) -> None:
        answers, self._answers = self._answers, []
        for answer in answers:
            answer()

    def require_topics(self, _rights: Any) -> None:
        if self.refusal is not None:
            raise self.refusal

    def __enter__(self) -> "Kafka":
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def to_end(self) -> Iterator[Message]:
        yield from self.before


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    found = Kafka()
    monkeypatch.setattr(publishing, "Admin", lambda cluster: cluster)
    monkeypatch.setattr(publishing, "TopicFollower", lambda cluster, *_arguments: cluster)
    return found


def published(kafka: Any, said: list[str] | None = None) -> PublishedRows:
    lines: list[str] = [] if said is None else said
    return PublishedRows(kafka, "queue-activators", "activator-1", lines.append)


def test_a_row_is_written_when_it_has_changed_and_no_more(kafka: Kafka) -> None:
    rows, changed = published(kafka), msgspec.structs.replace(ROW, crashes=1)
    for row in (ROW, ROW, changed, None, None):
        rows.publish({"orders": row})
    rows.publish({})
    key = key_of(ROW).encode()
    assert kafka.sent == [(key, encode_row(ROW)), (key, encode_row(changed)), (key, None)]
    assert not rows.queues


def test_what_an_earlier_run_has_written_is_not_written_again_and_can_be_removed(kafka: Kafka) -> None:
    kafka.before = [
        Message(key=key_of(row).encode(), value=encode_row(row), topic="queue-activators", partition=0, offset=at)
        for at, row in enumerate((ROW, OTHER))
    ]
    rows = published(kafka)
    assert rows.queues == {"orders"}
    rows.publish({"orders": ROW})
    assert kafka.sent == []
    rows.publish({"orders": None})
    assert kafka.sent == [(b"activator-1/orders", None)]


@pytest.mark.parametrize("row", [ROW, None])
def test_what_kafka_did_not_take_is_sent_again_unless_it_has_changed(kafka: Kafka, row: ActivatorRow | None) -> None:
    rows = published(kafka)
    rows.publish({"orders": msgspec.structs.replace(ROW, crashes=9)})
    kafka.sent.clear()
    kafka.answer = KafkaError._MSG_TIMED_OUT
    rows.publish({"orders": row})
    kafka.answer = None
    rows.publish({})
    rows.publish({})
    assert kafka.sent == [(b"activator-1/orders", None if row is None else encode_row(row))]


def test_what_kafka_refuses_for_good_is_sent_again_only_with_its_next_change(kafka: Kafka) -> None:
    rows = published(kafka)
    kafka.answer = KafkaError.MSG_SIZE_TOO_LARGE
    rows.publish({"orders": ROW})
    kafka.answer = None
    rows.publish({})
    assert kafka.sent == []
    rows.publish({"orders": ROW})
    assert len(kafka.sent) == 1


def test_a_full_client_keeps_the_rows_that_it_did_not_take(kafka: Kafka) -> None:
    rows, kafka.is_full = published(kafka), True
    rows.publish({"orders": ROW})
    kafka.is_full = False
    rows.publish({})
    assert kafka.sent == [(b"activator-1/orders", encode_row(ROW))]


def test_a_change_that_was_undone_before_it_was_sent_is_not_sent(kafka: Kafka) -> None:
    rows = published(kafka)
    rows.publish({"orders": ROW})
    kafka.is_full = True
    rows.publish({"orders": msgspec.structs.replace(ROW, crashes=1)})
    kafka.is_full = False
    rows.publish({"orders": ROW})
    assert len(kafka.sent) == 1


def test_without_the_topic_or_the_rights_it_says_so_once_and_goes_on(kafka: Kafka) -> None:
    said: list[str] = []
    kafka.refusal = UserError("Topics are missing: queue-activators.")
    rows = published(kafka, said)
    rows.publish({"orders": ROW})
    rows.publish({"orders": None})
    assert said == [
        "`queue show` and `queues` will not tell what this activator does: Topics are missing: queue-activators."
    ]
    assert kafka.sent == []


def test_a_right_that_is_lost_is_said_once(kafka: Kafka) -> None:
    said: list[str] = []
    rows = published(kafka, said)
    kafka.answer = KafkaError.TOPIC_AUTHORIZATION_FAILED
    for row in (ROW, None, ROW):
        rows.publish({"orders": row})
    assert len(said) == 1
    assert "docs/security.md" in said[0]


def test_a_row_that_is_too_large_is_left_out_and_the_others_are_written(kafka: Kafka) -> None:
    said: list[str] = []
    rows = published(kafka, said)
    kafka.problem = KafkaError.MSG_SIZE_TOO_LARGE
    rows.publish({"orders": ROW})
    kafka.problem = None
    rows.publish({"others": ROW})
    assert [key for key, _ in kafka.sent] == [b"activator-1/others"]
    assert said == []


def test_a_client_that_cannot_write_any_more_ends_the_rows_and_not_the_activator(kafka: Kafka) -> None:
    said: list[str] = []
    rows = published(kafka, said)
    kafka.problem = KafkaError._FATAL
    rows.publish({"orders": ROW})
    rows.publish({"orders": ROW})
    assert len(said) == 1
    assert kafka.sent == []
