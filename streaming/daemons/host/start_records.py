"""A host's share of queue-tasks: which tasks to start, each taken by one host once.

The hosts are one consumer group. What a host has taken is committed in a Kafka transaction of its own, and not here.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from streaming.core.activation.task_handlers import RecentTasks
from streaming.errors import UserError
from streaming.kafka.access import denial
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import LASTING_ERRORS
from streaming.system.stop_signals import GRACE_S
from streaming.system.threads import within
from streaming.wire.decoding import InvalidRecordError, RecordDecoder, decode_json
from streaming.wire.input_records import is_queue_name
from streaming.wire.output_records import StartActivatedTask

# What a user's properties may change. A host that was killed keeps its share, and those who join waiting, until its
# session ends. Kafka's defaults are 3 s and 45 s, and a task that nobody takes is lost after 60 s.
_DEFAULTS = {"heartbeat.interval.ms": 500, "session.timeout.ms": 10_000}

# What "each task is started once" rests on. With the cooperative strategy a host could not take its offsets up anew.
_FIXED = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "partition.assignment.strategy": "range",
    "group.protocol": "classic",
    "fetch.wait.max.ms": 100,
}

# librdkafka recovers from any other error by itself.
_COMMITTED_TIMEOUT_S = 1.0

# A partition that was paused gives its next record only half a second after it goes on (librdkafka 2.16, measured). So
# while all handlers are busy some records are kept here. They are not taken: whoever has the partition may take them.
_MAX_FETCHED = 100

_decoder = msgspec.json.Decoder(StartActivatedTask)


@dataclass(frozen=True)
class StartRecord:
    """A record of queue-tasks.

    Attributes:
        partition: Where it stands.
        offset: Where it stands there.
        task: What it says.
        expires_ms: From when on the task must not be started, in milliseconds since 1970.
        is_repeat: Whether the task has been taken before: the monitor writes a record at least once.
    """

    partition: int
    offset: int
    task: StartActivatedTask
    expires_ms: int
    is_repeat: bool


class StartRecords:
    """A member of the hosts' consumer group.

    Attributes:
        is_member: Whether the group has given the host its share, which may be nothing.
    """

    def __init__(self, cluster: Cluster, topic: str, group_id: str, say: Callable[[str], None]) -> None:
        """Joins the group; its share comes later, while records are taken.

        Args:
            cluster: Where Kafka is.
            topic: The topic queue-tasks.
            group_id: The consumer group of all hosts.
            say: Is told of records that are no tasks.

        Raises:
            UserError: The client does not take its properties.
        """
        self.is_member = False
        self._decoder = RecordDecoder("task", decode_task, say)
        self._topic = topic
        self._recent: dict[int, RecentTasks] = {}
        self._fetched: deque[Message] = deque()
        self._is_positioned = False
        self._is_paused = False
        self._consumer = cluster.consumer(_FIXED | {"group.id": group_id}, _DEFAULTS)
        self._join()

    def take(self, timeout_s: float, is_wanted: bool) -> StartRecord | None:
        """Returns the next task, if one is wanted and comes in time; keeps the membership in any case.

        A record that is no task is passed over; its offset is committed with that of the next task.

        Raises:
            UserError: Kafka does not let this host read the topic, or not as a member of the group.
        """
        if not self._is_positioned:
            self._position()
        message = self._consumer.poll(0 if is_wanted and self._fetched else timeout_s)
        if message is not None:
            self._accept(message)
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
        """What to commit so that the record is taken by nobody any more, nor a repeat of it."""
        recent = self._recent[record.partition]
        recent.add(record.task.task_id)
        return TopicPartition(self._topic, record.partition, record.offset + 1, recent.text())

    def group_metadata(self) -> object | None:
        """What a transaction needs to commit offsets as this member; None if it is a member no more.

        Asked for in this order: the metadata of a host that was expelled would name no member, and Kafka would take
        offsets from it as if there were no group.
        """
        metadata = self._consumer.consumer_group_metadata()
        member_id: str | None = self._consumer.memberid()  # whatever confluent-kafka's type stub says
        return metadata if member_id else None

    def rewind(self) -> None:
        """Goes back to what is committed: nobody knows whether the last transaction was."""
        self._is_positioned = False
        self._fetched.clear()

    def rejoin(self) -> None:
        """Leaves the group and comes back as another member."""
        self.rewind()
        self._consumer.unsubscribe()
        self._join()

    def close(self) -> None:
        """Leaves the group at once: others take over what is not committed."""
        # It waits 5 s for a Kafka that does not answer.
        with suppress(TimeoutError, KafkaException):
            within(GRACE_S, self._consumer.close)

    def _join(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def _accept(self, message: Message) -> None:
        error = message.error()
        if error is None:
            # Before the position is known it may be one that was taken; then it comes again.
            if self._is_positioned:
                self._fetched.append(message)
        elif error.fatal() or error.code() in LASTING_ERRORS:
            raise UserError(f"topic {self._topic} cannot be read: {denial(error) or error.str()}")

    def _record(self, message: Message) -> StartRecord | None:
        """Decodes a record; returns None if it is no task."""
        partition, offset = message.partition(), message.offset()
        assert partition is not None  # noqa: S101 - every record has both; told to the type checker
        assert offset is not None  # noqa: S101
        decoded = self._decoder.decode(message)
        if decoded is None:
            return None
        task, expires = decoded
        is_repeat = task.task_id in self._recent[partition]
        return StartRecord(partition, offset, task, int(expires.timestamp() * 1000), is_repeat)

    def _position(self) -> None:
        """Begins at the offsets that are committed, and learns which tasks were taken last."""
        partitions = self._consumer.assignment()
        try:
            # Waits for the end of transactions that are being committed: isolation.level asks for that.
            # A broker that takes longer is asked again by the next call, and the host hears of a signal meanwhile.
            found = self._consumer.committed(partitions, timeout=_COMMITTED_TIMEOUT_S) if partitions else []
        except KafkaException:
            return
        if any(each.error is not None for each in found):
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
    """Decodes a task, and until when it may be started; raises InvalidRecordError."""
    task = decode_json(_decoder, message.value())
    if not is_queue_name(task.queue) or message.key() != task.queue.encode():
        raise InvalidRecordError("its key differs from its `queue`, or that is no queue's name")
    try:
        expires = datetime.fromisoformat(task.expires_at)
    except ValueError as error:
        raise InvalidRecordError(f"`expires_at`: {error}") from None
    if expires.tzinfo is None:
        raise InvalidRecordError("`expires_at` has no time zone")
    return task, expires
