"""The true state of a queue's messages, from Kafka alone, and the count that the monitor would have."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, groupby
from typing import Any

import pyarrow as pa
from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from streaming.core.activation.events import Event, Receive
from streaming.core.times import FOREVER_MS
from streaming.kafka.clients import Cluster
from streaming.spark.activation.input_batch import by_key, keys_of, order_of
from streaming.spark.activation.sources import Source
from streaming.spark.blocks import RECORDS
from tests.support.histories import SECOND, Timeline
from tests.support.monitor_topics import DEADLINE_S, ConsumerRecord, MonitorTopics, Tail
from tests.support.reader_programs import Block, Outcome
from tests.support.waiting import wait_until


class QueueTruth:
    """Reads Kafka's data about one queue: its messages, its readers' offsets, and the reports to the monitor."""

    def __init__(self, topics: MonitorTopics, arrivals: Tail, receives: Tail, queue: str) -> None:
        self._topics = topics
        self._arrivals = arrivals
        self._receives = receives
        self._queue = queue
        self._admin = Cluster(topics.bootstrap_servers).admin_client()

    def wait_for_transactions(self) -> None:
        """Waits until no Kafka transaction is open. Those of killed readers are aborted at their time-out."""
        for topic in (self._queue, self._topics.topics.receives):
            wait_until(partial(self._is_settled, topic), DEADLINE_S, f"the end of all transactions on {topic}")
        wait_until(lambda: self.group_offsets() is not None, DEADLINE_S, "the end of all transactions of the group")

    def messages(self) -> dict[tuple[int, int], str]:
        """Returns all messages in the queue's topic, read or not, by partition and offset."""
        with self._topics.tail(self._queue) as tail:
            return {(each.partition, each.offset): each.value.decode() for each in tail.all_records()}

    def ends(self) -> dict[int, int]:
        """Returns the end of each partition of the queue."""
        return self._ends(self._queue, IsolationLevel.READ_COMMITTED)

    def group_offsets(self) -> dict[int, int] | None:
        """Returns the consumer group's committed offsets, 0 if there is none; None while a transaction is pending."""
        partitions = [TopicPartition(self._queue, number) for number in self._partitions(self._queue)]
        request = ConsumerGroupTopicPartitions(self._queue, partitions)
        try:
            answer = self._admin.list_consumer_group_offsets([request], require_stable=True)[self._queue].result()
        except KafkaException:
            return None
        if any(each.error is not None for each in answer.topic_partitions):
            return None
        return {each.partition: max(each.offset, 0) for each in answer.topic_partitions}

    def records(self) -> tuple[list[ConsumerRecord], list[ConsumerRecord]]:
        """Returns the queue's committed records of queue-arrivals and of queue-receives."""
        key = self._queue.encode()
        arrivals, receives = (
            [record for record in tail.all_records() if record.key == key] for tail in (self._arrivals, self._receives)
        )
        return arrivals, receives

    def _partitions(self, topic: str) -> list[int]:
        return [*self._admin.list_topics(topic).topics[topic].partitions]

    def _is_settled(self, topic: str) -> bool:
        return self._ends(topic, IsolationLevel.READ_COMMITTED) == self._ends(topic, IsolationLevel.READ_UNCOMMITTED)

    def _ends(self, topic: str, isolation_level: IsolationLevel) -> dict[int, int]:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        futures = self._admin.list_offsets(
            {TopicPartition(topic, number): latest for number in self._partitions(topic)},
            isolation_level=isolation_level,
        )
        return {partition.partition: future.result().offset for partition, future in futures.items()}


def committed_blocks(
    receives: Sequence[ConsumerRecord], blocks: Iterable[Block], killed: Collection[str]
) -> list[Block]:
    """Returns the blocks whose COMMIT was reported, in the order of the COMMITs.

    A session's n-th RECEIVE with messages is its n-th block, because the reports of a session keep their order. Kafka
    may lack the last reports of a killed session, but not those of a committed block: a commit waits for them.

    Args:
        receives: The committed records of queue-receives.
        blocks: The blocks of all sessions.
        killed: The ids of the sessions whose programs were killed.
    """
    assert len({record.partition for record in receives}) <= 1
    unreported: dict[str, list[Block]] = {}
    for block in blocks:
        unreported.setdefault(block.session_id, []).append(block)
    transactions: dict[tuple[str, str], Block] = {}
    committed = []
    for report in (json.loads(record.value) for record in receives):
        transaction = report["session_id"], report.get("transaction_id", "")
        match report["type"], report.get("result"):
            case "RECEIVE", "MESSAGES":
                assert transaction not in transactions, f"two RECEIVEs of one transaction: {report}"
                transactions[transaction] = block = unreported[report["session_id"]].pop(0)
                assert report["messages"] == len(block.messages), f"{report}, but the reader received {block}"
            case "COMMIT", None:
                assert transaction in transactions, f"a COMMIT of a transaction that is not open: {report}"
                committed.append(transactions.pop(transaction))
            case "ROLLBACK", None:
                assert transaction in transactions, f"a ROLLBACK of a transaction that is not open: {report}"
                del transactions[transaction]
    missing = [
        block
        for session_id, left in unreported.items()
        for block in left
        if session_id not in killed or block.outcome is Outcome.COMMITTED
    ]
    assert not missing, f"blocks without a RECEIVE: {missing}"
    return committed


class Count:
    """The monitor's count of one queue, from the core, which gets records as the pipeline would pass them on."""

    def __init__(self, *, is_healed: bool) -> None:
        """Begins without a queue.

        Args:
            is_healed: True: there is one batch per second of the records' timestamps, and the readers' own counts
                (`unread`) are used. False: there is one batch without these counts, so that no healing hides an error.
        """
        self._is_healed = is_healed
        self._timeline = Timeline()

    @property
    def unread(self) -> int:
        """Returns the monitor's count of unread messages."""
        return 0 if self._timeline.queue_if_any is None else self._timeline.queue.unread

    def feed(self, arrivals: Iterable[ConsumerRecord], receives: Iterable[ConsumerRecord]) -> None:
        """Passes new records to the core, then lets the leases of silent sessions expire."""
        rows = [_row(Source.ARRIVALS, each) for each in arrivals] + [_row(Source.RECEIVES, each) for each in receives]
        begin_ms = self._timeline.now_ms
        for since_ms, batch in self._batches(pa.Table.from_pylist(rows, RECORDS)):
            for given in by_key(batch, keys_of(batch)):
                _, events, wrong = given.decode()
                assert not wrong
                self._timeline.batch(begin_ms + since_ms, *map(self._as_believed, events))
        # Twice: the lease of a session killed long before the last record is found overdue, and extended once.
        for _ in range(2):
            self._timeline.batch(self._timeline.now_ms + self._timeline.settings.transaction_lease_ms)

    def _batches(self, records: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """Yields batches, each with its time since the first: one for each second with records, or one for all."""
        if not self._is_healed:
            yield 0, records
            return
        rows = records.take(order_of(records)).to_pylist()
        # As in the monitor's batches, a record never counts as earlier than the records before it.
        latest_ms = accumulate((row["timestamp_ms"] for row in rows), max)
        ordered = [row | {"timestamp_ms": each_ms} for row, each_ms in zip(rows, latest_ms, strict=True)]
        for second, group in groupby(ordered, lambda row: row["timestamp_ms"] // SECOND):
            since_s = second - ordered[0]["timestamp_ms"] // SECOND
            yield since_s * SECOND, pa.Table.from_pylist(list(group), RECORDS)

    def _as_believed(self, event: Event) -> Event:
        if not isinstance(event, Receive):
            return event
        # The core's clock is not that of the records, so each report counts as written when it is read.
        return replace(event, unread=event.unread if self._is_healed else None, reported_ms=FOREVER_MS)


def _row(source: Source, record: ConsumerRecord) -> dict[str, Any]:
    return {
        "source": source.value,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": record.key,
        "value": record.value,
        "value_bytes": len(record.value),
    }
