"""The rows that an activator publishes: each once when it has changed, and again if Kafka did not take it."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from streaming.daemons.activator import published_rows
from streaming.daemons.activator.published_rows import Place, PublishedRows
from streaming.errors import UserError
from streaming.kafka.admin import GroupMember
from streaming.wire.activator_rows import ActivatorRow, encode_row, key_of

ROW = ActivatorRow("orders", "activator-1", "group", "host", "/etc/a.toml")
OTHER = msgspec.structs.replace(ROW, activator="activator-2")


class Kafka:
    """A cluster and its clients: keeps what is produced, and has the records of earlier runs.

    Attributes:
        answer: The error with which it answers each record; None: it takes the record.
        refusal: The error that a check of the rights raises.
        sent: The keys and values that it has taken.
        before: The records of earlier runs.
        members: The members of the consumer group.
        opened: How often the topic was opened.
    """

    def __init__(self) -> None:
        self.answer: int | None = None
        self.refusal: UserError | None = None
        self.is_full = self.is_slow = False
        self.problem: int | None = None
        self.sent: list[tuple[bytes, bytes | None]] = []
        self.before: list[Message] = []
        self.members_of: list[str] = ["activator-1"]
        self.opened = 0
        self._answers: list[Callable[[], None]] = []

    def producer(self, _settings: Any) -> "Kafka":
        self.opened += 1
        return self

    def produce(
        self, _topic: str, value: bytes | None, key: bytes, on_delivery: Callable[..., None] = lambda *_: None
    ) -> None:
        if self.is_full:
            raise BufferError
        if self.problem is not None and value is not None:
            raise KafkaException(KafkaError(self.problem))
        error = None if self.answer is None else KafkaError(self.answer)
        if error is None:
            self.sent.append((key, value))
        self._answers.append(lambda: on_delivery(error, None))

    def poll(self, _timeout_s: float) -> None:
        if self.is_slow:
            self.is_slow = False  # this time there is no answer yet
            return
        answers, self._answers = self._answers, []
        for answer in answers:
            answer()

    def __len__(self) -> int:
        return len(self._answers)

    def purge(self) -> None:
        self._answers.clear()

    def close(self) -> None:
        pass

    def members(self, _group_id: str, _timeout_s: float) -> list[GroupMember]:
        return [GroupMember(instance_id, "", "", 0) for instance_id in self.members_of]

    def require_topics(self, _rights: Any) -> None:
        if self.refusal is not None:
            raise self.refusal

    def __enter__(self) -> "Kafka":
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def to_end(self) -> Iterator[Message]:
        yield from self.before


def started_here(call: Callable[[], Any]) -> Future[Any]:
    """Returns the outcome of a call, which has ended then."""
    outcome: Future[Any] = Future()
    try:
        outcome.set_result(call())
    except Exception as error:
        outcome.set_exception(error)
    return outcome


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now_s = [1_000.0]
    monkeypatch.setattr(published_rows.time, "monotonic", lambda: now_s[0])
    return now_s


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    found = Kafka()
    monkeypatch.setattr(published_rows, "started", started_here)
    monkeypatch.setattr(published_rows, "Admin", lambda cluster: cluster)
    monkeypatch.setattr(published_rows, "TopicFollower", lambda cluster, *_arguments: cluster)
    return found


def published(kafka: Any, said: list[str] | None = None) -> PublishedRows:
    """Returns the rows of an activator, whose topic has been opened unless Kafka refuses."""
    lines: list[str] = [] if said is None else said
    rows = PublishedRows(
        kafka, Place("queue-activators", "activator-1", "group"), lambda *line: lines.append(": ".join(line))
    )
    rows.publish({})
    return rows


def records(*rows: ActivatorRow, age_ms: int = 0) -> list[Any]:
    """Returns the records of rows."""
    at_ms = time.time_ns() // 1_000_000 - age_ms
    return [
        Message(key=key_of(row).encode(), value=encode_row(row), topic="queue-activators", timestamp=(1, at_ms))
        for row in rows
    ]


def test_a_row_is_written_when_it_has_changed_and_no_more(kafka: Kafka) -> None:
    rows, changed = published(kafka), msgspec.structs.replace(ROW, crashes=1)
    for row in (ROW, ROW, changed, None, None):
        rows.publish({"orders": row})
    rows.publish({})
    key = key_of(ROW).encode()
    assert kafka.sent == [(key, encode_row(ROW)), (key, encode_row(changed)), (key, None)]
    assert not rows.queues


def test_what_an_earlier_run_has_written_is_not_written_again_and_can_be_removed(kafka: Kafka) -> None:
    kafka.before = records(ROW, OTHER)
    rows = published(kafka)
    assert rows.queues == rows.take_found() == {"orders"}
    assert rows.take_found() == set()
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


def test_a_row_that_is_too_large_is_left_out_and_the_others_are_written(kafka: Kafka) -> None:
    said: list[str] = []
    rows = published(kafka, said)
    kafka.problem = KafkaError.MSG_SIZE_TOO_LARGE
    rows.publish({"orders": ROW})
    kafka.problem = None
    rows.publish({"others": ROW})
    assert [key for key, _ in kafka.sent] == [b"activator-1/others"]
    assert said == []


WORKS_AGAIN = "works again: `queue show` and `queues` tell what this activator does"


def test_without_the_topic_it_says_so_once_and_tries_again_until_all_rows_are_there(
    kafka: Kafka, clock: list[float]
) -> None:
    said: list[str] = []
    kafka.refusal = UserError("Topics are missing: queue-activators.")
    rows = published(kafka, said)
    others = msgspec.structs.replace(ROW, queue="others")
    rows.publish({"orders": ROW, "others": others, "gone": ROW})
    for _ in range(20):
        clock[0] += published_rows._LONGEST_PAUSE_S
        rows.publish({})
    assert said == [
        "warning: `queue show` and `queues` do not tell what this activator does: Topics are missing: "
        "queue-activators. This is tried again and again"
    ]
    kafka.refusal = None
    rows.publish({"gone": None})
    assert kafka.sent == [], "not before the pause is over"
    clock[0] += published_rows._LONGEST_PAUSE_S
    rows.publish({})
    rows.publish({})
    assert dict(kafka.sent) == {
        b"activator-1/orders": encode_row(ROW),
        b"activator-1/others": encode_row(others),
    }
    assert said[1:] == [WORKS_AGAIN]


def test_the_pauses_grow(kafka: Kafka, clock: list[float]) -> None:
    kafka.answer = KafkaError.TOPIC_AUTHORIZATION_FAILED
    rows = published(kafka)
    rows.publish({"orders": ROW})
    pauses: list[float] = []
    last_s = clock[0]
    for _ in range(1_000):
        clock[0] += 1
        rows.publish({})
        if kafka.opened == len(pauses) + 2:
            pauses.append(clock[0] - last_s)
            last_s = clock[0]
    assert pauses[:3] == [published_rows._PAUSE_S, 2 * published_rows._PAUSE_S, 4 * published_rows._PAUSE_S]
    assert pauses[-1] == published_rows._LONGEST_PAUSE_S


@pytest.mark.parametrize(
    ("answer", "problem", "why"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, None, "docs/security.md"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, None, "Unknown topic or partition"),
        (KafkaError._UNKNOWN_TOPIC, None, "Unknown topic"),
        (None, KafkaError._FATAL, "Fatal error"),
        (None, KafkaError._UNKNOWN_TOPIC, "Unknown topic"),
    ],
)
def test_after_a_failure_it_goes_on_with_all_rows(
    kafka: Kafka, clock: list[float], answer: int | None, problem: int | None, why: str
) -> None:
    said: list[str] = []
    rows = published(kafka, said)
    rows.publish({"others": OTHER})
    kafka.answer, kafka.problem = answer, problem
    for row in (ROW, None, ROW):
        rows.publish({"orders": row})
    assert len(said) == 1
    assert why in said[0]
    kafka.answer = kafka.problem = None
    kafka.sent.clear()
    clock[0] += published_rows._PAUSE_S
    rows.publish({})
    assert sorted(key for key, _ in kafka.sent) == [b"activator-1/orders", b"activator-1/others"]
    rows.publish({})
    assert said[1:] == [WORKS_AGAIN]
    rows.publish({"orders": None})
    assert kafka.sent[-1] == (b"activator-1/orders", None)


def test_it_works_again_as_soon_as_a_row_is_there_even_if_others_are_on_their_way(
    kafka: Kafka, clock: list[float]
) -> None:
    said: list[str] = []
    rows = published(kafka, said)
    kafka.answer = KafkaError.TOPIC_AUTHORIZATION_FAILED
    rows.publish({"orders": ROW})
    kafka.answer = None
    clock[0] += published_rows._PAUSE_S
    produce = kafka.produce

    def produce_and_wait(*arguments: Any, **more: Any) -> None:
        produce(*arguments, **more)
        kafka.is_slow = True

    kafka.produce = produce_and_wait  # type: ignore[method-assign]
    for crashes in range(3):
        rows.publish({"orders": msgspec.structs.replace(ROW, crashes=crashes)})
    assert said[1:] == [WORKS_AGAIN]


def test_what_was_removed_while_nothing_could_be_written_is_removed_later(kafka: Kafka, clock: list[float]) -> None:
    rows = published(kafka)
    rows.publish({"orders": ROW})
    kafka.answer, kafka.before = KafkaError.TOPIC_AUTHORIZATION_FAILED, records(ROW)
    rows.publish({"orders": None})
    kafka.answer = None
    kafka.sent.clear()
    clock[0] += published_rows._PAUSE_S
    rows.publish({})
    assert kafka.sent == [(b"activator-1/orders", None)]


def test_while_kafka_does_not_answer_the_topic_is_not_opened(kafka: Any) -> None:
    rows = PublishedRows(kafka, Place("queue-activators", "activator-1", "group"), print)
    rows.publish({"orders": ROW}, is_well=False)
    assert kafka.opened == 0
    rows.publish({})
    assert len(kafka.sent) == 1


def test_what_others_of_the_group_have_left_is_removed_after_a_day(kafka: Kafka) -> None:
    lives, elsewhere = OTHER, msgspec.structs.replace(OTHER, activator="activator-3", group_id="another")
    gone = msgspec.structs.replace(OTHER, activator="activator-4")
    yesterday = records(ROW, lives, elsewhere, gone, age_ms=published_rows._LEFT_MS + 1)
    today = records(msgspec.structs.replace(gone, queue="recent"))
    kafka.before, kafka.members_of = [*yesterday, *today], ["activator-1", "activator-2"]
    published(kafka)
    assert kafka.sent == [(b"activator-4/orders", None)]


def test_if_the_members_of_the_group_are_not_known_nothing_is_removed(kafka: Kafka) -> None:
    kafka.before, kafka.members_of = records(OTHER, age_ms=published_rows._LEFT_MS + 1), []
    published(kafka)
    assert kafka.sent == []
