"""Several queue readers of one queue: their knowledge of each other, and the loss of partitions."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition

from producers import reader as reader_module
from producers.producer import Message
from producers.queue_consumer import QueueConsumer
from producers.reader import LOOK_TIMEOUT_S, QueueReader
from streaming.kafka.errors import ReceiveRolledBackError
from tests.integration.test_reader import (
    COMMIT,
    EMPTY,
    INTERRUPTED,
    MESSAGES,
    ROLLBACK,
    SESSION_ENDED,
    WAITING,
    receive,
)
from tests.support.monitor_topics import (
    DEADLINE_S,
    MonitorTopics,
    Record,
    Tail,
    committed_offsets,
    expel_members,
    group_in_partition,
    group_members,
    without_transaction,
)
from tests.support.waiting import wait_until


class BackgroundReader:
    """Receives one message at a time in its own thread, and stays in the receive block while the gate is shut."""

    def __init__(self, reader: QueueReader) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.values: list[bytes] = []
        self.error: Exception | None = None
        self._reader = reader
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                with self._reader.receive(1, 0.1) as messages:
                    self.values += [message.value for message in messages]
                    if messages:
                        self.gate.wait(DEADLINE_S)
        except Exception as error:
            self.error = error

    def end(self) -> None:
        self._end.set()
        self.gate.set()
        self._thread.join()
        assert self.error is None


@contextmanager
def in_background(reader: QueueReader) -> Iterator[BackgroundReader]:
    running = BackgroundReader(reader)
    try:
        yield running
    finally:
        running.end()


def wait_until_shared(reports: Tail, *session_ids: str) -> None:
    """Waits until each session has reported an empty result while it owned only a part of the partitions."""
    for session_id in session_ids:
        reports.wait_for(session_id, lambda found: found[-1:] == [EMPTY], "an EMPTY of a part of the queue")


def send_to_all_partitions(monitor_topics: MonitorTopics, queue: str, partitions: int, count: int) -> None:
    groups = [group_in_partition(partition, partitions) for partition in range(partitions)]
    with monitor_topics.producer() as producer:
        producer.send_many([Message(queue, b"x", group) for _ in range(count) for group in groups])


def test_a_reader_without_a_partition_yet_has_not_found_the_queue_empty(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue(partitions=2)
    send_to_all_partitions(monitor_topics, queue, 2, 300)
    with monitor_topics.reader(queue) as first, in_background(first) as working:
        working.gate.clear()
        wait_until(lambda: working.values, DEADLINE_S, "a message for the first reader, which has both partitions")
        with monitor_topics.reader(queue, "second") as second:
            assert receive(second, timeout=2) == []
            assert not second.has_found_nothing
            working.gate.set()
            wait_until(lambda: receive(second, timeout=1), DEADLINE_S, "messages of its own partition")


def test_a_reader_beyond_the_number_of_partitions_reports_an_empty_result(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue(partitions=1)
    with monitor_topics.reports() as reports:
        with monitor_topics.reader(queue, "first") as first, in_background(first):
            reports.wait_for_last("first", **EMPTY)
            with monitor_topics.reader(queue, "second") as second:
                wait_until(lambda: receive(second, timeout=1) == [] and second.is_assigned, DEADLINE_S, "its share")
                assert receive(second, timeout=0) == []
                assert len(group_members(monitor_topics.bootstrap_servers, queue)) == 2
        of_second = reports.wait_for_last("second", **SESSION_ENDED)
    # It owns no partition, so it reports no count. The group has more members than the queue has partitions, so the
    # report has no `where`.
    assert of_second[-2:] == [{"type": "RECEIVE", "result": "EMPTY"}, SESSION_ENDED]


@pytest.mark.parametrize("partitions", [2, 3])
def test_where_while_another_reader_has_a_backlog(
    monitor_topics: MonitorTopics, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    """Runs two readers. A third reader could take over one of three partitions, but none of two."""
    monkeypatch.setattr(reader_module, "LOOK_INTERVAL_S", 0.2)
    where = {"where": True} if partitions == 3 else {}
    queue = monitor_topics.queue(partitions)
    with ExitStack() as stack:
        reports = stack.enter_context(monitor_topics.reports())
        busy = stack.enter_context(in_background(stack.enter_context(monitor_topics.reader(queue, "busy"))))
        waiting = stack.enter_context(monitor_topics.reader(queue, "waiting"))
        with in_background(waiting):
            wait_until_shared(reports, "busy", "waiting")
        busy.gate.clear()
        send_to_all_partitions(monitor_topics, queue, partitions, 3)
        wait_until(lambda: busy.values, DEADLINE_S, "the busy reader to receive")
        got = len(receive(waiting))
        while messages := receive(waiting, timeout=0):
            got += len(messages)

        # Without unread=0, because the reader owns only a part of the partitions.
        def is_empty(found: list[Record]) -> bool:  # an older EMPTY may be the last report that has come so far
            return found[-1] == EMPTY | where and sum(each.get("messages", 0) for each in found) == got

        before = len(reports.wait_for("waiting", is_empty, "an EMPTY after what it has got"))

        def release() -> None:
            found = reports.wait_for("waiting", lambda each: len(each) > before, "a WAITING")
            assert found[-1].pop("timeout_ms") <= (DEADLINE_S + LOOK_TIMEOUT_S) * 1000
            assert found[before:] == [WAITING | where]
            busy.gate.set()
            wait_until(lambda: got + len(busy.values) == 3 * partitions, DEADLINE_S, "the backlog to be read")
            if where:
                found = reports.wait_for("waiting", lambda each: len(each) > before + 1, "another WAITING")
                assert found[-1].pop("timeout_ms") < (DEADLINE_S + LOOK_TIMEOUT_S) * 1000
                assert found[before + 1 :] == [WAITING]
            send_to_all_partitions(monitor_topics, queue, partitions, 1)

        assert b"x" in run_beside(release, lambda: receive(waiting))


def run_beside(check: Callable[[], None], act: Callable[[], list[bytes]]) -> list[bytes]:
    """Runs `check` in a thread while this thread runs `act`. An error of either fails the test."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            check()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    result = act()
    thread.join()
    assert not errors, errors
    return result


def test_a_partition_read_to_its_end_has_no_backlog_for_others(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue(partitions=3)
    with monitor_topics.reports() as reports, ExitStack() as stack:
        for session_id in ("a", "b"):
            stack.enter_context(in_background(stack.enter_context(monitor_topics.reader(queue, session_id))))
        wait_until_shared(reports, "a", "b")
        send_to_all_partitions(monitor_topics, queue, 3, 2)
        # Each partition ends with a marker. A reader at the end has committed the offset after the marker.
        wait_until(
            lambda: set(committed_offsets(monitor_topics.bootstrap_servers, queue).values()) == {(3, 3)},
            DEADLINE_S,
            "the ends to be committed",
        )
        wait_until_shared(reports, "a", "b")


def test_a_joining_reader_does_not_roll_back_a_working_one(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue(partitions=2)
    send_to_all_partitions(monitor_topics, queue, 2, 1)
    with (
        monitor_topics.reports() as reports,
        monitor_topics.reader(queue, "working") as working,
        monitor_topics.reader(queue, "joining") as joining,
        in_background(working) as background,
    ):
        background.gate.clear()
        wait_until(lambda: background.values, DEADLINE_S, "a message")
        with in_background(joining):
            wait_until(
                lambda: len(group_members(monitor_topics.bootstrap_servers, queue)) == 2, DEADLINE_S, "the members"
            )
            background.gate.set()
            wait_until_shared(reports, "working", "joining")
        found = [*reports.of_session("working"), *reports.of_session("joining")]
        assert ROLLBACK not in without_transaction(found)


def test_an_expelled_reader_cannot_commit(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue(partitions=1)
    monitor_topics.send(queue, b"1")
    with monitor_topics.reports() as reports, monitor_topics.reader(queue, "s") as reader:
        # The reader does not know yet that it was expelled. The broker refuses its transaction.
        with pytest.raises(ReceiveRolledBackError, match="will be delivered again"), reader.receive(1, DEADLINE_S):
            expel_members(monitor_topics.bootstrap_servers, queue)
        assert committed_offsets(monitor_topics.bootstrap_servers, queue) == {0: (None, 2)}
        assert without_transaction(reports.wait_for_last("s", **ROLLBACK)) == [MESSAGES | {"messages": 1}, INTERRUPTED]
        wait_until(lambda: committed(reader), DEADLINE_S, "a commit, as a member again")
        assert committed_offsets(monitor_topics.bootstrap_servers, queue)[0][0] in (1, 2)


def committed(reader: QueueReader) -> bool:
    """Returns whether a message was received and committed."""
    try:
        return receive(reader, timeout=1) == [b"1"]
    except ReceiveRolledBackError:
        return False


def test_a_reader_that_lost_its_partitions_cannot_commit(monitor_topics: MonitorTopics) -> None:
    queue = monitor_topics.queue(partitions=1)
    monitor_topics.send(queue, b"1")
    # The least values that Kafka allows.
    impatient = {"max.poll.interval.ms": "6000", "session.timeout.ms": "6000"}

    def lose(slow: QueueReader, taker: BackgroundReader) -> None:
        with slow.receive(1, DEADLINE_S) as messages:
            assert [message.value for message in messages] == [b"1"]
            wait_until(lambda: taker.values == [b"1"], DEADLINE_S, "another reader to get the message")

    with ExitStack() as stack:
        reports = stack.enter_context(monitor_topics.reports())
        slow = stack.enter_context(monitor_topics.reader(queue, "slow", impatient))
        slow_received = wait_until(lambda: _peek(slow), DEADLINE_S, "the partition")
        assert slow_received
        taker = stack.enter_context(in_background(stack.enter_context(monitor_topics.reader(queue, "taker"))))
        with pytest.raises(ReceiveRolledBackError, match="will be delivered again"):
            lose(slow, taker)
        found: list[Record] = reports.wait_for_last("slow", **ROLLBACK)
        assert without_transaction(found[-2:]) == [MESSAGES | {"messages": 1}, INTERRUPTED]
        assert found[-2]["transaction_id"] == found[-1]["transaction_id"]
        reports.wait_for("taker", lambda each: COMMIT in without_transaction(each), "the commit")
        # The reader is a member again, and can continue.
        assert receive(slow, timeout=0.5) == []
    assert taker.values == [b"1"]


def _peek(reader: QueueReader) -> bool:
    """Receives and rolls back, so that the reader has the partition."""
    try:
        with reader.receive(1, DEADLINE_S) as messages:
            raise ZeroDivisionError if messages else AssertionError
    except ZeroDivisionError:
        return True


def test_a_consumer_that_begins_before_the_committed_offset_delivers_nothing_again(
    monitor_topics: MonitorTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library may begin there, in a rebalance while the offsets of a killed reader's transaction are pending."""
    queue = monitor_topics.queue(partitions=2)
    for number in range(2):
        monitor_topics.send(queue, b"1", b"2", b"3", group=group_in_partition(number, 2))
    with monitor_topics.reader(queue) as reader:
        wait_until(lambda: receive(reader, max_messages=1) == [b"1"], DEADLINE_S, "a message")
    tell = QueueConsumer._on_assign

    def begin_at_the_start(self: QueueConsumer, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        tell(self, consumer, partitions)
        consumer.incremental_assign([TopicPartition(queue, each.partition, 0) for each in partitions])

    monkeypatch.setattr(QueueConsumer, "_on_assign", begin_at_the_start)
    received: list[bytes] = []
    with monitor_topics.reader(queue) as reader:

        def finds_nothing() -> bool:
            received.extend(receive(reader, timeout=1))
            return reader.has_found_nothing

        wait_until(finds_nothing, DEADLINE_S, "the end")
    assert sorted(received) == [b"1", b"2", b"2", b"3", b"3"]
