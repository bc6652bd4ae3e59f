"""Asks Kafka whether one more queue reader could find messages, for a queue reader that finds none."""

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec

from streaming.kafka.access import AccessDeniedError, RightMissingError, WatchfulAdmin
from streaming.kafka.admin import EARLIEST, LATEST, Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import NO_COORDINATOR, NO_LEADER, NOBODY_ANSWERS, kafka_error
from streaming.kafka.group_coordinator import committed

# A waiting reader cannot receive while it asks Kafka, so it must not wait long for a broker that does not answer.
QUESTION_TIMEOUT_S = 2.0

# No broker answered, or a broker cannot answer at the moment. The result is unknown, and the next look asks again.
_NO_ANSWER = (
    *NOBODY_ANSWERS,
    *NO_COORDINATOR,
    *NO_LEADER,
    KafkaError._WAIT_COORD,
    KafkaError._NODE_UPDATE,
    KafkaError._NOENT,  # no partition has a known leader; the error of a topic that is gone is another one
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NothingFound:
    """A queue reader has read its own partitions to their ends.

    Attributes:
        where: Whether the reader has only a part of the queue, and a further reader could find messages in the rest.
        owns_all: Whether the reader has all partitions, so that the queue has no unread message.
    """

    where: bool
    owns_all: bool


def are_read_to_end(positions: Mapping[int, int | None], ends: Mapping[int, int]) -> bool:
    """Returns whether each of the partitions is known to be read to its end."""
    return all(position is not None and position >= ends[number] for number, position in positions.items())


class EmptinessProbe:
    """Asks Kafka about a queue and its readers."""

    def __init__(self, cluster: Cluster, admin: Admin, queue: str, consumer_group: str) -> None:
        """Stores the arguments.

        Args:
            cluster: The cluster.
            admin: Makes the requests that are not about the group.
            queue: The name of the queue and of its topic.
            consumer_group: The consumer group of all readers of the queue.
        """
        self._cluster = cluster
        self._admin = admin
        self._queue = queue
        self._consumer_group = consumer_group

    def look(self, own_positions: Mapping[int, int | None]) -> NothingFound | None:
        """Returns a result only if the caller has certainly read its whole share of the queue; None otherwise.

        The method asks Kafka each time, so that an outage does not look like an empty queue.

        Args:
            own_positions: The caller's position in each of its own partitions, of which there may be none.

        Raises:
            KafkaException: Kafka refuses to answer.
            RightMissingError: Kafka does not grant this user a right.
        """
        try:
            return self._look(own_positions)
        except KafkaException as exception:
            error = kafka_error(exception)
            self._admin.failed(exception)
            if error.retriable() or error.code() in _NO_ANSWER:
                return None
            raise
        except RightMissingError:
            raise
        except AccessDeniedError:
            return None  # a broker that starts may refuse one connection; the consumer goes on too

    def _look(self, own_positions: Mapping[int, int | None]) -> NothingFound | None:
        ends = self._offsets(self._partitions(), LATEST)
        if not ends.keys() >= own_positions.keys() or not are_read_to_end(own_positions, ends):
            return None
        others = ends.keys() - own_positions.keys()
        if not others:
            return NothingFound(where=False, owns_all=True)
        # Asked after the ends. A commit in between can only make a partition look further read than it was.
        if are_read_to_end(self._group_positions(others), ends):
            return NothingFound(where=False, owns_all=False)
        members = self._members()
        if not own_positions and members <= len(ends):
            return None  # there is a partition for each member, so this member will still get a partition
        return NothingFound(where=members < len(ends), owns_all=False)

    def _partitions(self) -> list[int]:
        """Returns the current partitions. A consumer notices new partitions only minutes later."""
        topics = TopicCollection([self._queue])
        client = self._admin.client
        future = client.describe_topics(topics, request_timeout=QUESTION_TIMEOUT_S)[self._queue]
        return [partition.id for partition in _answer(client, future).partitions]

    def _offsets(self, numbers: Iterable[int], spec: OffsetSpec) -> dict[int, int]:
        """Returns offsets for read_committed consumers: the last stable offsets for LATEST."""
        client = self._admin.client
        futures = client.list_offsets(
            {TopicPartition(self._queue, number): spec for number in numbers},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=QUESTION_TIMEOUT_S,
        )
        return {partition.partition: _answer(client, future).offset for partition, future in futures.items()}

    def _group_positions(self, numbers: Collection[int]) -> dict[int, int | None]:
        """Returns the offset at which the consumer group would continue in each partition."""
        answers = committed(self._cluster, self._consumer_group, self._queue, numbers, QUESTION_TIMEOUT_S)
        first = self._offsets(numbers, EARLIEST)
        # Without a committed offset the answer is negative. After messages expire, it may be below the first offset.
        return {answer.partition: max(answer.offset, first[answer.partition]) for answer in answers}

    def _members(self) -> int:
        # The coordinator has just answered `_group_positions`.
        client = self._admin.client_for_groups()
        return len(client.group(self._consumer_group, 2 * QUESTION_TIMEOUT_S).members)


def _answer(client: WatchfulAdmin, future: "Future[T]") -> T:
    """Returns the answer to a request of this client.

    Another reader of the program may replace the client of `Admin` meanwhile. The end of a client ends its requests.
    """
    return client.result(future, lost_after_s=2 * QUESTION_TIMEOUT_S)
