"""Could one more queue reader find anything? What a reader that finds nothing asks Kafka."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from streaming.kafka.access import WatchfulAdmin
from streaming.kafka.errors import kafka_error

# A waiting reader cannot receive while it asks, so it must not wait long for a broker that does not answer.
QUESTION_TIMEOUT_S = 2.0

# Nobody has answered, or somebody who cannot just now: nothing was found out, and the next look will tell.
_NO_ANSWER = frozenset(
    (
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._WAIT_COORD,
        KafkaError._NODE_UPDATE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
    )
)


@dataclass(frozen=True, slots=True)
class NothingFound:
    """A queue reader has read its own partitions to their ends.

    Attributes:
        where: Whether it looked at a part of the queue only, while a further reader could find something elsewhere.
        owns_all: Whether its partitions are all there are: then nothing at all is unread.
    """

    where: bool
    owns_all: bool


def are_read_to_end(positions: Mapping[int, int | None], ends: Mapping[int, int]) -> bool:
    """Whether each of the partitions is known to be read to its end."""
    return all(position is not None and position >= ends[number] for number, position in positions.items())


class EmptinessProbe:
    """What Kafka knows about a queue and its readers."""

    def __init__(self, admin: WatchfulAdmin, queue: str, consumer_group: str) -> None:
        """Prepares it.

        Args:
            admin: Asks Kafka.
            queue: The queue's name, which is its topic's.
            consumer_group: The consumer group of all its readers.
        """
        self._admin = admin
        self._queue = queue
        self._consumer_group = consumer_group

    def look(self, own_positions: Mapping[int, int | None]) -> NothingFound | None:
        """Asks anew, so that an outage is not taken for an empty queue.

        Args:
            own_positions: The caller's position in each of its own partitions, of which there may be none.

        Returns:
            None if it is not certain that the caller's partitions are read to their ends, or that they are its share.

        Raises:
            KafkaException: Kafka refuses to answer.
        """
        try:
            return self._look(own_positions)
        except KafkaException as exception:
            error = kafka_error(exception)
            if error.retriable() or error.code() in _NO_ANSWER:
                return None
            raise

    def _look(self, own_positions: Mapping[int, int | None]) -> NothingFound | None:
        ends = self._offsets(self._partitions(), OffsetSpec.latest())  # type: ignore[no-untyped-call]
        if not ends.keys() >= own_positions.keys() or not are_read_to_end(own_positions, ends):
            return None
        others = ends.keys() - own_positions.keys()
        if not others:
            return NothingFound(where=False, owns_all=True)
        # Asked after the ends: what was committed since can only make a partition look more read than it was.
        if are_read_to_end(self._group_positions(others), ends):
            return NothingFound(where=False, owns_all=False)
        members = self._members()
        if not own_positions and members <= len(ends):
            return None  # there is a partition for each member: this one's is still to come
        return NothingFound(where=members < len(ends), owns_all=False)

    def _partitions(self) -> list[int]:
        """The partitions there are now; a consumer notices new ones minutes later."""
        topics = TopicCollection([self._queue])
        description = self._admin.describe_topics(topics, request_timeout=QUESTION_TIMEOUT_S)[self._queue].result()
        return [partition.id for partition in description.partitions]

    def _offsets(self, numbers: Iterable[int], spec: OffsetSpec) -> dict[int, int]:
        """Offsets as a read_committed consumer sees them: `latest` is the last stable offset."""
        futures = self._admin.list_offsets(
            {TopicPartition(self._queue, number): spec for number in numbers},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=QUESTION_TIMEOUT_S,
        )
        return {partition.partition: future.result().offset for partition, future in futures.items()}

    def _group_positions(self, numbers: Iterable[int]) -> dict[int, int | None]:
        """Where the consumer group would go on in partitions: committed offsets, at least the first offset there is."""
        partitions = [TopicPartition(self._queue, number) for number in numbers]
        request = ConsumerGroupTopicPartitions(self._consumer_group, partitions)
        (future,) = self._admin.list_consumer_group_offsets([request], request_timeout=QUESTION_TIMEOUT_S).values()
        committed = {answer.partition: answer.offset for answer in future.result().topic_partitions}
        first = self._offsets(committed, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        # Without a committed offset the answer is negative; expired messages leave one below the first offset.
        return {number: max(offset, first[number]) for number, offset in committed.items()}

    def _members(self) -> int:
        futures = self._admin.describe_consumer_groups([self._consumer_group], request_timeout=QUESTION_TIMEOUT_S)
        return len(futures[self._consumer_group].result().members)
