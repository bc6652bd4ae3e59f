"""What the activator reads: the notifications, once for its consumer group, and the monitors view, all of it."""

import contextlib
import time
from collections.abc import Callable

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from msgspec import Struct

from streaming.core.activation.program_starts import ViewRow
from streaming.errors import UserError
from streaming.kafka.access import RightMissingError, denial
from streaming.kafka.clients import Cluster
from streaming.kafka.latest_rows import LatestRows
from streaming.kafka.topic_follower import Start, TopicFollower, end_offset
from streaming.system.stop_signals import GRACE_S, is_asked
from streaming.system.threads import within
from streaming.wire import notifications
from streaming.wire.decoding import Int64, InvalidRecordError, RecordDecoder, decode_json
from streaming.wire.input_records import is_queue_name
from streaming.wire.notifications import Activation
from streaming.wire.output_records import MonitorState

# Kafka's brokers accept nothing shorter than 6 s (group.min.session.timeout.ms). A restarted activator is known by its
# instance id and takes over at once; this is how long another activator of the group waits for one that is gone.
_SESSION_TIMEOUT_MS = 10_000
_COMMIT_INTERVAL_MS = 1_000
# Of notifications and of rows per step: bounds how long programs that have exited wait to be noticed.
_MAX_NOTIFICATIONS = 500
_MAX_ROWS = 10_000
_PROBE_INTERVAL_S = 5.0
_PROBE_TIMEOUT_S = 0.5


class _MonitorRow(Struct):
    """The fields of a record of queue-monitors that the activator needs."""

    state: MonitorState | None
    unread_messages: Int64
    activation_sequence: Int64


_row_decoder = msgspec.json.Decoder(_MonitorRow)


class Notifications:
    """Reads queue-activations in a consumer group.

    Attributes:
        is_assigned: Whether the group has given this member its share; from then on records come.
        problem: What is wrong with Kafka; None: nothing.
    """

    def __init__(
        self, cluster: Cluster, topic: str, group_id: str, instance_id: str, say: Callable[[str], None]
    ) -> None:
        """Joins the group; `is_assigned` tells when that is done.

        Args:
            cluster: Where Kafka is.
            topic: The topic queue-activations.
            group_id: The consumer group of the activators.
            instance_id: By what the group knows this one again after a restart.
            say: Is told of records that are no notifications.

        Raises:
            UserError: The client does not take its properties.
        """
        self.is_assigned = False
        self.problem: str | None = None
        self._decoder = RecordDecoder("notification", notifications.decode, say)
        self._topic = topic
        self._old_ends: dict[int, int] = {}
        self._probe_s = 0.0
        config = {
            "group.id": group_id,
            "group.instance.id": instance_id,
            "session.timeout.ms": _SESSION_TIMEOUT_MS,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            # Only what `done` was told of is committed.
            "enable.auto.offset.store": False,
            "enable.auto.commit": True,
            "auto.commit.interval.ms": _COMMIT_INTERVAL_MS,
            # How long the broker waits for more; a record that comes is delivered at once.
            "fetch.wait.max.ms": 100,
            "error_cb": self._on_error,
        }
        self._consumer = cluster.consumer(config)
        self._consumer.subscribe([topic], on_assign=self._on_assign)

    def poll(self, timeout_s: float) -> list[Message]:
        """The records that have come, as soon as there is one, or none within the time.

        Raises:
            UserError: Another activator has taken this one's place in the group, or Kafka allows this one none.
        """
        messages: list[Message] = []
        while len(messages) < _MAX_NOTIFICATIONS:
            message = self._consumer.poll(0 if messages else timeout_s)
            if message is None:
                break
            error = message.error()
            if error is None:
                self.problem = None
                messages.append(message)
            elif error.fatal():
                raise UserError(
                    f"Kafka has closed this activator's place in its group: {error.str()}. Does another activator run "
                    "on a copy of the state directory?"
                )
            else:
                self._take_problem(error)
        self._probe()
        return messages

    def decode(self, message: Message) -> Activation | None:
        """Returns what a record says; None if it is no notification."""
        return self._decoder.decode(message)

    @property
    def passed_over(self) -> int:
        """How many records could not be decoded."""
        return self._decoder.passed_over

    def is_old(self, message: Message) -> bool:
        """Whether a record was there before this member got its share."""
        partition, offset = message.partition(), message.offset()
        if partition is None or offset is None or partition not in self._old_ends:
            return True
        return offset < self._old_ends[partition]

    def done(self, messages: list[Message]) -> None:
        """These records must not come again."""
        for message in messages:
            # Another member may have got the partition meanwhile: then they do come again, there.
            with contextlib.suppress(KafkaException):
                self._consumer.store_offsets(message)

    def close(self) -> None:
        """Commits what is done; what cannot be committed comes again, as repeats."""
        # It waits 10 s for a Kafka that does not answer, and cannot be told otherwise.
        with contextlib.suppress(TimeoutError, KafkaException):
            within(GRACE_S, self._consumer.close)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._old_ends = {}
        for each in partitions:
            if is_asked():
                break
            # Without its end all of a partition counts as old: then nothing is started before the view tells of it.
            with contextlib.suppress(KafkaException):
                self._old_ends[each.partition] = end_offset(consumer, each)
        self.is_assigned = True

    def _on_error(self, error: KafkaError) -> None:
        # What follows a refusal says less than it.
        if denial(error) or (error.code() == KafkaError._ALL_BROKERS_DOWN and self.problem is None):
            self._take_problem(error)

    def _take_problem(self, error: KafkaError) -> None:
        denied = denial(error)
        if isinstance(denied, RightMissingError):
            raise denied
        self.problem = str(denied) if denied else error.str()

    def _probe(self) -> None:
        """Without records nothing else would tell that Kafka is back."""
        now_s = time.monotonic()
        if self.problem is None or now_s < self._probe_s:
            return
        self._probe_s = now_s + _PROBE_INTERVAL_S
        with contextlib.suppress(KafkaException):
            found = self._consumer.list_topics(self._topic, timeout=_PROBE_TIMEOUT_S).topics[self._topic]
            self.problem = found.error.str() if found.error is not None else None


class MonitorsView:
    """The latest row of every queue monitor."""

    def __init__(self, cluster: Cluster, topic: str, say: Callable[[str], None]) -> None:
        """Begins to read.

        Args:
            cluster: Where Kafka is.
            topic: The topic queue-monitors.
            say: Is told of records that are no rows.

        Raises:
            UserError: The topic is missing, or Kafka cannot be reached.
        """
        self._view = LatestRows("row of a queue monitor", decode_row, say)
        self._follower = TopicFollower(cluster, [topic], Start.BEGINNING)

    def read_to_end(self) -> None:
        """Reads all there is now."""
        for message in self._follower.to_end():
            self._view.take(message)

    def take_changed(self) -> set[str]:
        """The queues whose row has changed since the last call; returns at once."""
        changed = set()
        for _ in range(_MAX_ROWS):
            message = self._follower.poll(0)
            if message is None:
                break
            queue = self._view.take(message)
            if queue is not None:
                changed.add(queue)
        return changed

    @property
    def passed_over(self) -> int:
        """How many records of the topic could not be decoded."""
        return self._view.passed_over

    def row(self, queue: str) -> ViewRow | None:
        """The queue's row; None if it has none."""
        return self._view.rows.get(queue)

    def close(self) -> None:
        """Ends reading."""
        self._follower.__exit__(None, None, None)


def decode_row(message: Message) -> tuple[str, ViewRow | None]:
    """Decodes a queue and its row, None for a tombstone; raises InvalidRecordError."""
    key, value = message.key() or b"", message.value()
    queue = key.decode(errors="replace")
    if not is_queue_name(queue) or queue.encode() != key:
        raise InvalidRecordError("its key is no name of a queue")
    if value is None:
        return queue, None
    row = decode_json(_row_decoder, value)
    return queue, ViewRow(row.activation_sequence, row.state, row.unread_messages)
