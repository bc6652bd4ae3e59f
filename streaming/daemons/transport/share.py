"""A transport's share of service-decisions: its partitions, their positions, and the records to carry out.

All transports are one consumer group. The transactions that carry out decisions commit the offsets; this module commits
nothing. When the group gives partitions to this transport, the transport waits for the end of the previous owner's
transactions, and begins at the stored marks. When the group takes partitions away, the transport forgets them. If a
transaction is open then, Kafka refuses the transaction's offsets, so the transaction takes no effect.
"""

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from streaming.core.conversations.decision_batches import Carrying, Position
from streaming.daemons.transport.stored_marks import MarksReader, Stored
from streaming.kafka.clients import Cluster
from streaming.kafka.group_member import ANSWER_TIMEOUT_S, GroupMember
from streaming.system.client_ids import client_id
from streaming.wire.record_decoders import InvalidRecordError

# Bounds the memory for records that were fetched ahead.
_DEFAULTS = {"queued.max.messages.kbytes": 32 * 1024, "fetch.queue.backoff.ms": 10}

_MARKS_STEP_S = 0.05
_AT_ONCE = 1_000
# Records are taken from the client only while fewer bytes wait here. The client keeps twice as many bytes.
_MAX_WAITING_BYTES = 16 * 1024 * 1024


@dataclass
class Partition:
    """A partition of service-decisions in this transport's share.

    Attributes:
        number: The partition's number.
        carrying: The decisions of the partition.
        stopped: Why no further decision of the partition may be carried out; None: the partition has not stopped.
        cleaned_up_to: The offset of the last CLEAN_UP that was carried out; None: no CLEAN_UP was carried out.
    """

    number: int
    carrying: Carrying
    stopped: str | None = None
    cleaned_up_to: int | None = None


@dataclass
class _Joining:
    """The partitions that the group has given to this transport, and whose positions are not known yet."""

    partitions: list[TopicPartition]
    are_committed: bool = False
    readers: dict[int, MarksReader] = field(default_factory=dict)
    stored: dict[int, Stored] = field(default_factory=dict)
    faults: dict[int, str] = field(default_factory=dict)


class Share:
    """A member of the transports' consumer group.

    Attributes:
        is_member: Whether the group has given this transport its share, and the positions in it are known. The share
            may be empty.
        partitions: The partitions of the share, by number.
        waiting: The records to carry out, in the order of each partition. The caller takes records out, and may put
            them back.
    """

    def __init__(self, cluster: Cluster, topic: str, marks_topic: str, group_id: str) -> None:
        """Starts to join the group. The group gives out the share later, during calls of `fill`.

        Args:
            cluster: The Kafka cluster.
            topic: The topic service-decisions.
            marks_topic: The topic service-marks.
            group_id: The consumer group of all transports.

        Raises:
            UserError: The client rejects its properties.
        """
        self.is_member = False
        self.partitions: dict[int, Partition] = {}
        self.waiting: deque[Message] = deque()
        self._cluster = cluster
        self._topic, self._marks_topic = topic, marks_topic
        self._joining: _Joining | None = None
        self._waiting_bytes = 0
        defaults = _DEFAULTS | {"client.id": client_id("transport")}
        self._member = GroupMember(cluster, topic, group_id, self._on_assign, self._on_revoke, defaults)
        self._consumer = self._member.consumer

    def fill(self, timeout_s: float) -> None:
        """Waits for records, and keeps up the membership.

        Raises:
            UserError: Kafka does not allow this transport to read, or to be a member of the group.
        """
        if self._joining is not None:
            self._position(self._joining)
        if not self.waiting:
            self._waiting_bytes = 0
        # Every call must poll, because this also calls `_on_assign` and `_on_revoke`.
        first = self._consumer.poll(timeout_s)
        if first is None:
            return
        self._accept(first)
        if self._waiting_bytes < _MAX_WAITING_BYTES:
            for message in self._consumer.consume(_AT_ONCE, 0):
                self._accept(message)

    def end_of(self, partition: int) -> int:
        """Returns the present end of a partition; raises KafkaException."""
        place = TopicPartition(self._topic, partition)
        _, end = self._consumer.get_watermark_offsets(place, timeout=ANSWER_TIMEOUT_S)
        return int(end)

    def offsets(self, partitions: Iterable[int]) -> list[TopicPartition]:
        """Returns the offsets of the next records of these partitions."""
        positions = {number: self.partitions[number].carrying.position for number in partitions}
        return [TopicPartition(self._topic, number, position.offset) for number, position in positions.items()]

    def group_metadata(self) -> object | None:
        """Returns the membership for a transaction's commit of offsets; None if this transport is not a member."""
        return self._member.group_metadata()

    def stop(self, partition: Partition, reason: str) -> None:
        """Stops carrying out the decisions of a partition."""
        partition.stopped = reason
        self.waiting = deque(each for each in self.waiting if each.partition() != partition.number)
        # After a failure the records still come, and are dropped.
        with suppress(KafkaException):
            self._consumer.pause([TopicPartition(self._topic, partition.number)])

    def rejoin(self) -> None:
        """Leaves the group and joins it again as another member, because the outcome of a transaction is unknown."""
        self._forget()
        self._member.rejoin()

    def close(self) -> None:
        """Leaves the group at once, so that other transports take over."""
        self._forget()
        self._member.close()

    def _accept(self, message: Message) -> None:
        if not self._member.check(message):
            return
        # Before the position is known, the record may have been carried out already.
        partition = self.partitions.get(message.partition() or 0)
        if partition is not None and partition.stopped is None:
            self.waiting.append(message)
            self._waiting_bytes += len(message)

    def _forget(self) -> None:
        self.is_member = False
        self.partitions = {}
        # A new deque, because a transaction that hangs in another thread may still use the old one.
        self.waiting = deque()
        if self._joining is not None:
            for reader in self._joining.readers.values():
                reader.close()
        self._joining = None

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._forget()
        self._joining = _Joining(partitions)
        # No partition is read before its position is known. Partitions that are read, or paused, and then assigned with
        # an offset do not always begin at that offset (librdkafka 2.16).
        consumer.assign([])

    def _on_revoke(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._forget()

    def _position(self, joining: _Joining) -> None:
        """Finds the positions at which to begin; takes several calls."""
        if joining.partitions and not joining.are_committed:
            if self._member.committed(joining.partitions) is None:
                return
            joining.are_committed = True
        for place in joining.partitions:
            self._read_marks(joining, place.partition)
        if len(joining.stored) + len(joining.faults) < len(joining.partitions):
            return
        self._begin(joining)

    def _read_marks(self, joining: _Joining, number: int) -> None:
        if number in joining.stored or number in joining.faults:
            return
        # Only after the group's offsets are stable: from then on, the previous owner cannot begin a commit.
        reader = joining.readers.setdefault(number, MarksReader(self._cluster, self._marks_topic, number))
        try:
            stored = reader.read(_MARKS_STEP_S)
        except InvalidRecordError as error:
            joining.faults[number] = f"its marks are invalid: {error}"
        else:
            if stored is None:
                return
            joining.stored[number] = stored
        reader.close()

    def _begin(self, joining: _Joining) -> None:
        try:
            found = {
                number: Partition(number, Carrying(*joining.stored[number], self.end_of(number)))
                for number in joining.stored
            }
        except KafkaException:
            return
        self._joining = None
        self.partitions = found
        self._consumer.assign(self.offsets(found))
        for number, fault in joining.faults.items():
            self.partitions[number] = Partition(number, Carrying(Position(), {}, 0), stopped=fault)
        self.is_member = True
