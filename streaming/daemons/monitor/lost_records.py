"""Finds records that Kafka deleted before the monitor read them, and logs a warning.

Kafka's retention may delete records while the monitor is down or behind. Spark then goes on with the first record left.
"""

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from streaming.core.numbers import plural
from streaming.errors import UserError
from streaming.kafka.admin import ADMIN_TIMEOUT_S, EARLIEST
from streaming.kafka.asked_offsets import AskedOffsets, Place
from streaming.kafka.clients import CLIENT_TIMEOUT_S, Cluster
from streaming.spark.activation.lost_mark import LostMark
from streaming.wire.ticks import REPORTS_LOST
from streaming.wire.topics import Topics

INTERVAL_S = 10.0
# The main thread waits for the answer, and must notice Ctrl-C.
_TIMEOUT_S = 1.0

# Topic -> partition -> offset, as Spark writes it.
Offsets = Mapping[str, Mapping[str, int]]

_log = logging.getLogger(__name__)


class LostRecords:
    """Compares the topics' first offsets with the query's offsets, before the start and once per INTERVAL_S.

    Attributes:
        counts: The number of lost offsets of each partition since the start. Some offsets may be markers of
            transactions. The query may have read some of the last records before a deletion.
        marked_at: The offset of the tick that tells the shards that reports are lost; None before Kafka has the tick.
    """

    def __init__(self, cluster: Cluster, topics: Topics, partitions: Mapping[str, int], mark: LostMark) -> None:
        """Prepares the requests.

        Args:
            cluster: The monitor's cluster.
            topics: The monitor's topics.
            partitions: The number of partitions of each topic.
            mark: The note in the checkpoint, which lasts longer than Kafka keeps the tick.
        """
        counted = topics.counted()
        self.counts: Mapping[Place, int] = {(topic, n): 0 for topic in counted for n in range(partitions[topic])}
        self.marked_at: int | None = None
        self._topics = topics
        self._kept = mark
        self._begins = AskedOffsets(cluster, partitions, counted)
        self._producer = cluster.producer({"linger.ms": 0})
        # The offsets that committed batches have reached. The thread of Spark's listener replaces the dictionary.
        self._read: dict[Place, int] = {}
        # At the last look, all records before these offsets were read or known to be lost.
        self._passed: dict[Place, int] = {}
        self._has_to_mark = False
        self._next_look_s = 0.0

    def begin(self, read: Offsets) -> None:
        """Looks for lost records before the query starts, and tells the shards about them.

        Args:
            read: The offsets at which the query goes on.

        Raises:
            UserError: Kafka does not take the tick that tells the shards.
        """
        self._read = _by_place(read)
        self._passed = dict(self._read)
        # The checkpoint's offset of ticks must not count as behind a mark: it is older than any mark, or belongs to a
        # topic that was deleted and created again.
        self._read.pop((self._topics.ticks, 0), None)
        # The previous monitor may have read on after the gap, and ended before the shards have read its tick.
        self._has_to_mark = self._kept.is_kept()
        self._look(ADMIN_TIMEOUT_S)
        self._mark()
        if self._producer.flush(CLIENT_TIMEOUT_S) or self._has_to_mark:
            raise UserError(f"Kafka does not take a record of {self._topics.ticks}. Check that all brokers run.")

    def query_is_active(self, is_active: bool) -> None:
        """Does nothing."""

    def batch_is_committed(self, progress: Mapping[str, Any]) -> None:
        """Notes the end offsets of a batch. `progress` is Spark's StreamingQueryProgress, from its JSON."""
        read = dict(self._read)
        for source in progress["sources"]:
            read |= _by_place(source["endOffset"] or {})
        self._read = read

    def look(self) -> None:
        """Looks for records that were lost since the last look, once per INTERVAL_S, and tells the shards."""
        if self.marked_at is not None and self._read.get((self._topics.ticks, 0), 0) > self.marked_at:
            self.marked_at = None
            self._kept.drop()
        now_s = time.monotonic()
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + INTERVAL_S
        self._look(_TIMEOUT_S)
        with suppress(KafkaException):  # the next look tries again
            self._mark()
        self._producer.poll(0)

    def _look(self, timeout_s: float) -> None:
        read = self._read  # before the request, because the query may read on until Kafka answers
        for place, begin in self._begins.ask(EARLIEST, timeout_s).items():
            passed = self._passed.get(place, begin)
            if begin > passed:
                self._tell(place, passed, begin)
            self._passed[place] = max(passed, begin, read.get(place, begin))

    def _tell(self, place: Place, first: int, end: int) -> None:
        topic, number = place
        self.counts = {**self.counts, place: self.counts.get(place, 0) + end - first}
        is_of_definitions = topic == self._topics.commands
        self._has_to_mark |= not is_of_definitions
        consequence = (
            "Send the definitions of queues again"
            if is_of_definitions
            else "The count of each queue is uncertain until a reader finds the queue empty"
        )
        where = f"{topic}, partition {number}, offsets {first} to {end - 1}"
        records = plural(end - first, "record")
        _log.warning("Kafka has deleted up to %s unread by the monitor (%s). %s", records, where, consequence)

    def _mark(self) -> None:
        if self._has_to_mark:
            self._kept.keep()
            self.marked_at = None
            self._producer.produce(self._topics.ticks, REPORTS_LOST, on_delivery=self._on_delivery)
            self._has_to_mark = False

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.marked_at = message.offset()
        else:
            self._has_to_mark = True


def _by_place(offsets: Offsets) -> dict[Place, int]:
    return {(topic, int(number)): offset for topic, found in offsets.items() for number, offset in found.items()}
