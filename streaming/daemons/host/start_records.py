"""A host's share of queue-tasks, the tasks to start. Each task goes to only one host, once.

The hosts are one consumer group. `Taking` commits the offsets of taken records in Kafka transactions; this module
commits nothing.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from streaming.core.activation.task_handlers import RecentTasks
from streaming.kafka.clients import Cluster
from streaming.kafka.group_member import GroupMember
from streaming.wire.input_records import is_queue_name
from streaming.wire.output_records import StartActivatedTask
from streaming.wire.record_decoders import InvalidRecordError, RecordDecoder, decode_json

# A paused partition delivers its next record only half a second after it is resumed (librdkafka 2.16, measured). So
# some records are kept here while all handlers are busy. They are not taken: the host that has the partition may still
# take them.
_MAX_FETCHED = 100

_decoder = msgspec.json.Decoder(StartActivatedTask)


@dataclass(frozen=True)
class StartRecord:
    """A record of queue-tasks.

    Attributes:
        partition: The record's partition.
        offset: The record's offset.
        task: The task.
        expires_ms: The time from which the task must not be started, in milliseconds since 1970.
        is_repeat: Whether the task was taken before; the monitor writes a record at least once.
    """

    partition: int
    offset: int
    task: StartActivatedTask
    expires_ms: int
    is_repeat: bool


class StartRecords:
    """A member of the hosts' consumer group.

    Attributes:
        is_member: Whether the group has given the host its share of the partitions, which may be empty.
    """

    def __init__(self, cluster: Cluster, topic: str, group_id: str, say: Callable[[str], None]) -> None:
        """Starts to join the group, which gives the host its share later, during calls of `take`.

        Args:
            cluster: The Kafka cluster.
            topic: The topic queue-tasks.
            group_id: The consumer group of all hosts.
            say: Called with a line about a record that is not a task.

        Raises:
            UserError: The client rejects its properties.
        """
        self.is_member = False
        self._decoder = RecordDecoder("task", decode_task, say)
        self._topic = topic
        self._recent: dict[int, RecentTasks] = {}
        self._fetched: deque[Message] = deque()
        self._is_positioned = False
        self._is_paused = False
        self._member = GroupMember(cluster, topic, group_id, self._on_assign, self._on_revoke)
        self._consumer = self._member.consumer

    def take(self, timeout_s: float, is_wanted: bool) -> StartRecord | None:
        """Returns the next task, if `is_wanted` and if a task comes in time. In any case, keeps up the membership.

        A record that is not a task is passed over; its offset is committed with the offset of the next task.

        Raises:
            UserError: Kafka does not allow this host to read the topic or to be a member of the group.
        """
        if not self._is_positioned:
            self._position()
        message = self._consumer.poll(0 if is_wanted and self._fetched else timeout_s)
        # Until the position is known, the record may have been taken before. If it was not taken, it comes again.
        if message is not None and self._member.check(message) and self._is_positioned:
            self._fetched.append(message)
        if not self._is_paused and len(self._fetched) >= _MAX_FETCHED:
            self._is_paused = True
            self._consumer.pause(self._consumer.assignment())
        elif self._is_paused and not self._fetched:
            self._is_paused = False
            self._consumer.resume(self._consumer.assignment())
        while is_wanted and self._fetched:
            record = self._record(self._fetched.popleft())
            if record is not None:
                return record
        return None

    def position_behind(self, record: StartRecord) -> TopicPartition:
        """Returns the offset behind a record. After its commit, no host takes the record or a repeat of the record."""
        recent = self._recent[record.partition]
        recent.add(record.task.task_id)
        return TopicPartition(self._topic, record.partition, record.offset + 1, recent.text())

    def group_metadata(self) -> object | None:
        """Returns the membership for a transaction's commit of offsets; None if the host is no longer a member."""
        return self._member.group_metadata()

    def rewind(self) -> None:
        """Goes back to the committed offsets, because the outcome of the last transaction may be unknown."""
        self._is_positioned = False
        self._fetched.clear()

    def rejoin(self) -> None:
        """Leaves the group and joins it again as another member."""
        self.rewind()
        self._member.rejoin()

    def close(self) -> None:
        """Leaves the group at once, so that other hosts take over the records that are not committed."""
        self._member.close()

    def _record(self, message: Message) -> StartRecord | None:
        """Decodes a record; returns None if it is not a task."""
        partition, offset = message.partition(), message.offset()
        assert partition is not None  # noqa: S101 - for the type checker: every record has both
        assert offset is not None  # noqa: S101
        decoded = self._decoder.decode(message)
        if decoded is None:
            return None
        task, expires = decoded
        is_repeat = task.task_id in self._recent[partition]
        return StartRecord(partition, offset, task, int(expires.timestamp() * 1000), is_repeat)

    def _position(self) -> None:
        """Goes to the committed offsets, and reads which tasks were taken last."""
        partitions = self._consumer.assignment()
        found = self._member.committed(partitions)
        if found is None:
            return
        self._recent = {each.partition: RecentTasks(each.metadata or "") for each in found}
        if found:
            self._consumer.assign([_begin(each) for each in found])
            self._consumer.resume(partitions)
        self._is_paused = False
        self._is_positioned = True

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.is_member = True
        self.rewind()
        consumer.assign(partitions)

    def _on_revoke(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self.rewind()


def _begin(committed: TopicPartition) -> TopicPartition:
    offset = committed.offset if committed.offset >= 0 else OFFSET_BEGINNING
    return TopicPartition(committed.topic, committed.partition, offset)


def decode_task(message: Message) -> tuple[StartActivatedTask, datetime]:
    """Decodes a task and the time until which it may be started. Raises InvalidRecordError."""
    task = decode_json(_decoder, message.value())
    if not is_queue_name(task.queue) or message.key() != task.queue.encode():
        raise InvalidRecordError("its key differs from its `queue`, or `queue` is not a queue name")
    try:
        expires = datetime.fromisoformat(task.expires_at)
    except ValueError as error:
        raise InvalidRecordError(f"`expires_at`: {error}") from None
    if expires.tzinfo is None:
        raise InvalidRecordError("`expires_at` has no time zone")
    return task, expires
