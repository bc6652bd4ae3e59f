"""Tests whether there is a record between two offsets. Only a fetch shows if offsets are records or markers."""

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from streaming.core.observer.phantoms import Phantoms
from streaming.core.observer.pictures import Place
from streaming.kafka.clients import READS_COMMITTED, Cluster

_POLL_S = 0.05
_METADATA_TIMEOUT_S = 1.0
# A backlog whose test takes longer counts as messages, because longer reading would cost more than its result is worth.
_BELIEVED_AFTER_S = 10.0
_FIXED = READS_COMMITTED | {
    "group.id": "queue-activation-groups",  # librdkafka demands a name
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "queued.max.messages.kbytes": 1024,
    # A fetch that waits for the next record of a partition would hold up the tests of the others.
    "fetch.wait.max.ms": 20,
}


@dataclass(frozen=True)
class Probed:
    """The result of a test.

    Attributes:
        empty_until: The offset before which there is no record.
        found: The offset of the first record; None if there is no record before the end.
        is_denied: Whether the user may not read the topic.
    """

    empty_until: int
    found: int | None = None
    is_denied: bool = False


@dataclass(frozen=True)
class Tested:
    """The result of a group's test: the partition, the offset at which the test began, and the result there."""

    place: Place
    begin: int
    result: Probed

    def note(self, phantoms: Phantoms) -> None:
        """Adds the result to the group's known phantoms."""
        phantoms.is_denied |= self.result.is_denied
        phantoms.probed(self.place, self.begin, self.result.empty_until, self.result.found)


class PhantomProbe:
    """Reads partitions with a consumer that commits nothing and joins no group."""

    def __init__(self, cluster: Cluster) -> None:
        """Creates the consumer, which connects for the first test; raises UserError for invalid properties."""
        self._consumer = cluster.consumer(_FIXED)
        # Partition that is read -> the offset at which the test began, and the instant.
        self._asked: dict[Place, tuple[int, float]] = {}
        self._known: set[str] = set()

    def close(self) -> None:
        """Closes the connections."""
        self._consumer.close()

    def probe(self, begins: dict[Place, int], limit_s: float) -> dict[Place, Probed]:
        """Reads each partition from its offset until it finds a record, or the end.

        Args:
            begins: The partitions and their offsets.
            limit_s: The longest time. The result leaves out a test that takes longer. The test goes on if the next call
                asks for it again.
        """
        self._ask(begins)
        found: dict[Place, Probed] = {}
        end_s = time.monotonic() + limit_s
        while self._asked and (now_s := time.monotonic()) < end_s:
            message = self._consumer.poll(min(_POLL_S, end_s - now_s))
            if message is not None and (read := self._read(message)) is not None:
                place, result = read
                found[place] = result
                self._drop([place])
        late_s = time.monotonic() - _BELIEVED_AFTER_S
        for place, (begin, since_s) in [*self._asked.items()]:
            if since_s < late_s:
                found[place] = Probed(begin, begin)
                self._drop([place])
        return found

    def test(self, backlogs: Mapping[str, Iterable[tuple[Place, int]]], limit_s: float) -> dict[str, Tested]:
        """Tests the backlogs of groups: a partition of each group at a time, because one record suffices.

        Args:
            backlogs: Group -> the partitions that may hold only phantoms, with the offsets to read from.
            limit_s: The longest time, as for `probe`.

        Returns:
            Group -> result, for the results that are known. A group waits while another group's test uses its
            partition.
        """
        begins: dict[Place, int] = {}
        asking: dict[str, Place] = {}
        for group, to_test in backlogs.items():
            for place, begin in to_test:
                if place not in begins:
                    begins[place], asking[group] = begin, place
                    break
        probed = self.probe(begins, limit_s)
        return {
            group: Tested(place, begins[place], probed[place]) for group, place in asking.items() if place in probed
        }

    def _ask(self, begins: dict[Place, int]) -> None:
        """Continues the tests that are asked for again, drops all other tests, and begins new tests."""
        self._drop([place for place, (begin, _) in self._asked.items() if begins.get(place) != begin])
        new = {place: begin for place, begin in begins.items() if place not in self._asked}
        if new:
            self._learn({topic for topic, _ in new})
            self._consumer.incremental_assign([TopicPartition(*place, begin) for place, begin in new.items()])
            self._asked |= {place: (begin, time.monotonic()) for place, begin in new.items()}

    def _learn(self, topics: set[str]) -> None:
        """Asks for the leaders of new topics at once. librdkafka by itself asks only once per second."""
        new = topics - self._known
        if new:
            with suppress(KafkaException):  # the test takes longer
                self._consumer.list_topics(next(iter(new)) if len(new) == 1 else None, timeout=_METADATA_TIMEOUT_S)
                self._known |= new

    def _drop(self, places: list[Place]) -> None:
        if places:
            self._consumer.incremental_unassign([TopicPartition(*place) for place in places])
        for place in places:
            del self._asked[place]

    def _read(self, message: Message) -> tuple[Place, Probed] | None:
        """Returns the result for a tested partition, from a message or an error; None if there is no result yet."""
        topic, partition, offset, error = message.topic(), message.partition(), message.offset(), message.error()
        if topic is None or partition is None or (topic, partition) not in self._asked:
            return None
        place = topic, partition
        if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return place, Probed(self._asked[place][0], is_denied=True)
        if offset is None or (error is not None and error.code() != KafkaError._PARTITION_EOF):
            return None
        return place, Probed(offset, offset if error is None else None)
