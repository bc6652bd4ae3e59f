"""One queue reader: its deliveries, commits and reports."""

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer

from producers import session_reports
from producers.reader import LOOK_TIMEOUT_S, SESSION_ID_VARIABLE, QueueReader
from streaming.core.activation.session_ids import program_of
from streaming.errors import UserError
from streaming.kafka.errors import ClientUnusableError, ReceiveRolledBackError
from tests.support.monitor_topics import DEADLINE_S, MonitorTopics, Tail, committed_offsets, without_transaction
from tests.support.waiting import wait_until

MESSAGES = {"type": "RECEIVE", "result": "MESSAGES"}
EMPTY = {"type": "RECEIVE", "result": "EMPTY"}
WAITING = {"type": "RECEIVE", "result": "WAITING"}
COMMIT = {"type": "COMMIT"}
ROLLBACK = {"type": "ROLLBACK"}
INTERRUPTED = ROLLBACK | {"interrupted": True}
SESSION_ALIVE = {"type": "SESSION_ALIVE"}
SESSION_ENDED = {"type": "SESSION_ENDED"}


def receive(reader: QueueReader, max_messages: int = 10, timeout: float = DEADLINE_S) -> list[bytes]:
    with reader.receive(max_messages, timeout) as messages:
        return [message.value for message in messages]


def when_waiting(reports: Tail, session_id: str, act: Callable[[], None]) -> threading.Thread:
    """Calls `act`, in a thread, as soon as the session has reported that it waits."""

    def run() -> None:
        reports.wait_for_last(session_id, **WAITING)
        act()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_messages_then_commit(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue()
    monitor_topics.send(queue, b"1", b"2", b"3", group="order-1")
    with monitor_topics.reader(queue, "s") as reader, monitor_topics.reports() as reports:
        with reader.receive(2, DEADLINE_S) as messages:
            assert [(each.value, each.conversation_group_id) for each in messages] == [
                (b"1", "order-1"),
                (b"2", "order-1"),
            ]
            assert (messages[1].key, messages[1].partition, messages[1].offset) == (b"order-1", 0, 1)
            received, *more = reports.wait_for_last("s", **MESSAGES)
            assert more == []
        assert receive(reader) == [b"3"]
        found = reports.wait_for("s", lambda each: len(each) == 4, "four reports")
        assert without_transaction(found) == [
            MESSAGES | {"messages": 2},
            COMMIT,
            MESSAGES | {"messages": 1},
            COMMIT,
        ]
        assert received["transaction_id"] == found[0]["transaction_id"] == found[1]["transaction_id"]
        assert found[2]["transaction_id"] == found[3]["transaction_id"] != received["transaction_id"]
        assert len({(record.partition, record.key) for record in reports.records()}) == 1
    with monitor_topics.reader(queue) as next_reader:
        monitor_topics.send(queue, b"4")
        assert receive(next_reader) == [b"4"]


class NotUtf8(str):
    """The name of a header as no well-behaved client writes it."""

    __slots__ = ()

    def encode(self, *_how: Any) -> bytes:
        return b"\xff"


def test_a_header_that_cannot_be_decoded_loses_no_message(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue()
    producer = KafkaProducer(bootstrap_servers=monitor_topics.bootstrap_servers, linger_ms=1_000)
    # The interpreter checks the call that decodes headers only until it has specialized it, after some calls.
    sent = [(b"%d" % number, "good" if number % 50 else NotUtf8("bad")) for number in range(200)]
    for value, name in sent:
        producer.send(queue, value, headers=[(name, b"")])
    producer.close()
    received: list[tuple[bytes, tuple[tuple[str, bytes | None], ...]]] = []
    with monitor_topics.reader(queue) as reader:
        while len(received) < len(sent):
            with reader.receive(len(sent), DEADLINE_S) as messages:
                assert messages
                received += [(each.value, each.headers) for each in messages]
    assert received == [(value, (("good", b""),) if name == "good" else ()) for value, name in sent]


@pytest.mark.parametrize(
    ("error", "report"), [(KeyboardInterrupt(), INTERRUPTED), (SystemExit(), INTERRUPTED), (SystemExit(1), ROLLBACK)]
)
def test_a_stop_rolls_back_without_blaming_the_messages(
    monitor_topics: MonitorTopics, error: BaseException, report: dict[str, Any]
) -> None:
    queue = monitor_topics.queue()
    monitor_topics.send(queue, b"1")
    with monitor_topics.reader(queue, "s") as reader, monitor_topics.reports() as reports:
        with pytest.raises(type(error)), reader.receive(10, DEADLINE_S):
            raise error
        assert without_transaction(reports.wait_for_last("s", **report)) == [MESSAGES | {"messages": 1}, report]


def test_an_exception_rolls_back(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue()
    monitor_topics.send(queue, b"1", b"2")
    with monitor_topics.reader(queue, "s") as reader, monitor_topics.reports() as reports:
        with pytest.raises(ZeroDivisionError), reader.receive(10, DEADLINE_S):
            _ = 1 // 0
        assert receive(reader) == [b"1", b"2"]
        found = reports.wait_for_last("s", **COMMIT)
        assert without_transaction(found) == [
            MESSAGES | {"messages": 2},
            ROLLBACK,
            MESSAGES | {"messages": 2},
            COMMIT,
        ]
        assert found[0]["transaction_id"] == found[1]["transaction_id"] != found[2]["transaction_id"]


def test_what_was_rolled_back_is_delivered_to_the_next_reader(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue()
    monitor_topics.send(queue, b"1")
    with pytest.raises(ZeroDivisionError), monitor_topics.reader(queue) as reader, reader.receive(1, DEADLINE_S):
        _ = 1 // 0
    with monitor_topics.reader(queue) as reader:
        assert receive(reader) == [b"1"]


def test_waiting_then_a_message(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue(partitions=2)
    with monitor_topics.reader(queue, "s") as reader, monitor_topics.reports() as reports:
        sender = when_waiting(reports, "s", lambda: monitor_topics.send(queue, b"1"))
        assert receive(reader, timeout=DEADLINE_S) == [b"1"]
        sender.join()
        waiting, *others = reports.wait_for_last("s", **COMMIT)
    assert 0 < waiting.pop("timeout_ms") <= (DEADLINE_S + LOOK_TIMEOUT_S) * 1000
    assert waiting == WAITING
    assert without_transaction(others) == [MESSAGES | {"messages": 1}, COMMIT]


def test_waiting_in_vain(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue(partitions=2)
    with monitor_topics.reader(queue, "s") as reader, monitor_topics.reports() as reports:
        assert receive(reader, timeout=2) == []
        waiting, *others = reports.wait_for_last("s", **EMPTY)
    assert 0 < waiting.pop("timeout_ms") <= 2000 + LOOK_TIMEOUT_S * 1000
    assert waiting == WAITING
    assert others == [EMPTY | {"unread": 0}]


def test_no_time_to_wait(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue()
    monitor_topics.send(queue, b"1")
    with monitor_topics.reader(queue, "s") as reader, monitor_topics.reports() as reports:
        assert receive(reader) == [b"1"]
        assert receive(reader, timeout=0) == []
        assert receive(reader, timeout=0) == []
        found = reports.wait_for("s", lambda each: len(each) == 4, "four reports")
        assert found[2:] == [EMPTY | {"unread": 0}] * 2
        monitor_topics.send(queue, b"2")
        wait_until(lambda: receive(reader, timeout=0) == [b"2"], DEADLINE_S, "the message")


def test_a_receive_without_an_assignment_reports_nothing(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue()
    with monitor_topics.reports() as reports:
        with monitor_topics.reader(queue, "s") as reader:
            assert receive(reader, timeout=0) == []
        assert reports.wait_for_last("s", **SESSION_ENDED) == [SESSION_ENDED]


def test_aborted_messages_and_markers_are_not_unread(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue()
    raw = Producer({"bootstrap.servers": monitor_topics.bootstrap_servers, "transactional.id": queue})
    raw.init_transactions()
    with monitor_topics.reader(queue, "s") as reader, monitor_topics.reports() as reports:
        for value in (b"aborted", b"open"):
            raw.begin_transaction()
            raw.produce(queue, value)
            raw.flush()
            if value == b"aborted":
                raw.abort_transaction()
            assert receive(reader, timeout=1) == []
            found = reports.wait_for_last("s", **EMPTY)
            assert found[-1] == EMPTY | {"unread": 0}
            # The end is the last stable offset: after the aborted message and its marker, before the open message.
            assert committed_offsets(monitor_topics.bootstrap_servers, queue) == {0: (2, 2)}
        raw.commit_transaction()
        assert receive(reader) == [b"open"]
        assert receive(reader, timeout=0) == []
        assert committed_offsets(monitor_topics.bootstrap_servers, queue) == {0: (4, 4)}


def test_the_sessions_end(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue()
    with monitor_topics.reports() as reports:
        reader = monitor_topics.reader(queue, "s")
        reader.close()
        reader.close()
        assert reports.wait_for_last("s", **SESSION_ENDED) == [SESSION_ENDED]
        with pytest.raises(ClientUnusableError, match="is closed"):
            receive(reader)


def test_closed_in_its_block(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue()
    monitor_topics.send(queue, b"1")
    reader = monitor_topics.reader(queue, "s")
    with pytest.raises(ReceiveRolledBackError, match="closed"), reader.receive(1, DEADLINE_S):
        reader.close()
    with monitor_topics.reader(queue) as next_reader, monitor_topics.reports() as reports:
        found = reports.wait_for_last("s", **SESSION_ENDED)
        assert without_transaction(found) == [MESSAGES | {"messages": 1}, SESSION_ENDED]
        assert receive(next_reader) == [b"1"]


def test_a_session_says_that_it_is_alive(monitor_topics: MonitorTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_reports, "SESSION_ALIVE_INTERVAL_S", 0.05)
    queue = monitor_topics.queue()
    monitor_topics.send(queue, b"1")
    with monitor_topics.reports() as reports:
        with monitor_topics.reader(queue, "s") as reader, reader.receive(1, DEADLINE_S):
            seen = len(reports.of_session("s"))
            reports.wait_for("s", lambda each: each[seen:].count(SESSION_ALIVE) >= 3, "three records SESSION_ALIVE")
        found = reports.wait_for_last("s", **SESSION_ENDED)
        assert {"MESSAGES"} == {each["result"] for each in found if each["type"] == "RECEIVE"}


@pytest.mark.parametrize("environment", [None, "e"])
def test_a_session_may_be_given_an_id(
    monitor_topics: MonitorTopics, monkeypatch: pytest.MonkeyPatch, environment: str | None
) -> None:
    monkeypatch.setattr(os, "environ", {} if environment is None else {SESSION_ID_VARIABLE: environment})
    with monitor_topics.reports() as reports:
        with monitor_topics.reader(monitor_topics.queue(), "g") as reader:
            assert reader.session_id == "g"
        reports.wait_for_last("g", **SESSION_ENDED)


@pytest.mark.parametrize("program", [None, "e"])
def test_sessions_have_ids_of_their_own(
    monitor_topics: MonitorTopics, monkeypatch: pytest.MonkeyPatch, program: str | None
) -> None:
    monkeypatch.setattr(os, "environ", {} if program is None else {SESSION_ID_VARIABLE: program})
    queue = monitor_topics.queue()
    with monitor_topics.reports() as reports:
        with monitor_topics.reader(queue) as first, monitor_topics.reader(queue) as second:
            assert first.session_id != second.session_id
        for reader in (first, second):
            assert program_of(reader.session_id) == (program or reader.session_id)
            reports.wait_for_last(reader.session_id, **SESSION_ENDED)


def test_missing_topics_and_invalid_queue_names(monitor_topics: MonitorTopics) -> None:
    with pytest.raises(UserError, match="cannot be a Kafka topic"):
        monitor_topics.reader("a/b")
    with pytest.raises(UserError, match="Queue 'not-there' has no topic"):
        monitor_topics.reader("not-there")
    with pytest.raises(UserError, match=r"no topic 'no-such-queue-receives'.*queue-activation topics"):
        QueueReader(monitor_topics.bootstrap_servers, monitor_topics.queue(), topic_prefix="no-such-")


@pytest.mark.parametrize(("max_messages", "timeout"), [(0, 1), (1_000_001, 1), (1, -1), (1, float("nan"))])
def test_limits(monitor_topics: MonitorTopics, max_messages: int, timeout: float) -> None:
    with monitor_topics.reader(monitor_topics.queue()) as reader, pytest.raises(ValueError, match="it must be"):
        receive(reader, max_messages, timeout)


def test_one_receive_at_a_time(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue()
    monitor_topics.send(queue, b"1", b"2")
    with monitor_topics.reader(queue) as reader:
        with reader.receive(1, DEADLINE_S), pytest.raises(RuntimeError, match="second reader"):
            receive(reader)
        assert receive(reader) == [b"2"]


def test_all_messages_are_delivered_once_in_their_order(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue(partitions=3)
    sent: dict[str, list[bytes]] = {f"group-{number}": [] for number in range(7)}
    got: dict[str | None, list[Any]] = {}
    with ExitStack() as stack:
        reader = stack.enter_context(monitor_topics.reader(queue))
        producer = stack.enter_context(monitor_topics.producer())
        for number in range(50):
            group = f"group-{number % 7}"
            sent[group].append(b"%d" % number)
            producer.send(queue, b"%d" % number, conversation_group_id=group)
        for attempt in range(1000):
            try:
                with reader.receive(3, 0.5) as messages:
                    if attempt % 3 == 0:
                        raise ZeroDivisionError
                    for message in messages:
                        got.setdefault(message.conversation_group_id, []).append(message.value)
            except ZeroDivisionError:
                continue
            if sum(map(len, got.values())) >= 50:
                break
    assert got == sent
