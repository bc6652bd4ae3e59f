"""Reads the activator's topics: notifications, as a member of a consumer group, and the whole monitors view."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from msgspec import Struct

from streaming.core.activation.held_notifications import ViewRow
from streaming.core.activation.start_decisions import Notified
from streaming.core.times import NEVER_MS, iso_ms
from streaming.errors import UserError
from streaming.kafka.access import Denials, RightMissingError, denial
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import reason_of
from streaming.kafka.group_member import leave
from streaming.kafka.latest_rows import LatestRows
from streaming.kafka.topic_follower import Start, TopicFollower, end_offset
from streaming.system import wall_clock
from streaming.system.client_ids import client_id
from streaming.system.stop_signals import GRACE_S, is_asked
from streaming.system.threads import within
from streaming.wire import notifications
from streaming.wire.input_records import is_queue_name
from streaming.wire.notifications import Activation
from streaming.wire.output_records import MonitorState, Short
from streaming.wire.record_decoders import Int64, InvalidRecordError, RecordDecoder, decode_json

# Kafka's brokers accept no less than 6 s (group.min.session.timeout.ms). An activator that was killed has the same
# instance id when it starts again, and continues at once. Another activator waits this long for its place.
_SESSION_TIMEOUT_MS = 10_000
_COMMIT_INTERVAL_MS = 1_000
# The limits of notifications and of rows per step. They bound the delay with which exits of programs are noticed.
_MAX_NOTIFICATIONS = 500
_MAX_ROWS = 10_000
_PROBE_INTERVAL_S = 5.0
_PROBE_TIMEOUT_S = 0.5


class _MonitorRow(Struct):
    """The fields of a queue-monitors record that the activator needs."""

    state: MonitorState | None
    unread_messages: Int64
    activation_sequence: Int64
    update_time: Short | None = None
    last_activated_time: Short | None = None
    members: Int64 | None = None
    one_more: bool | None = None
    last_commit_time: Short | None = None
    idle_since: Short | None = None


_row_decoder = msgspec.json.Decoder(_MonitorRow)


class Notifications:
    """Reads queue-activations in a consumer group.

    Attributes:
        decoder: Decodes the records, and counts records that are not notifications.
        is_assigned: Whether the group has given this member its share of the partitions. Records come only after that.
        problem: The present problem with Kafka, as a sentence; None if there is none.
    """

    def __init__(
        self, cluster: Cluster, topic: str, group_id: str, instance_id: str, say: Callable[[str], None]
    ) -> None:
        """Starts to join the group; `is_assigned` tells when that is done.

        Args:
            cluster: The Kafka cluster.
            topic: The topic queue-activations.
            group_id: The consumer group of the activators.
            instance_id: Identifies this activator in the group after a restart.
            say: Called with a line about a record that is not a notification.

        Raises:
            UserError: The client rejects its properties.
        """
        self.decoder = RecordDecoder("notification", notifications.decode, say)
        self.is_assigned = False
        self.problem: str | None = None
        self._servers = cluster.bootstrap_servers
        self._denials = Denials()
        self._topic = topic
        self._old_ends: dict[int, int] = {}
        self._probe_s = 0.0
        config = {
            "group.id": group_id,
            "group.instance.id": instance_id,
            "session.timeout.ms": _SESSION_TIMEOUT_MS,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            # Only the offsets that `done` stores are committed.
            "enable.auto.offset.store": False,
            "enable.auto.commit": True,
            "auto.commit.interval.ms": _COMMIT_INTERVAL_MS,
            # How long the broker waits if there are no records; a new record is delivered at once.
            "fetch.wait.max.ms": 100,
            "error_cb": self._on_error,
        }
        self._consumer = cluster.consumer(config, {"client.id": client_id("activator")})
        self._consumer.subscribe([topic], on_assign=self._on_assign)

    def poll(self, timeout_s: float) -> list[Message]:
        """Waits up to `timeout_s` for a record, and returns all records that have come.

        Raises:
            UserError: Another activator has taken over this member's place in the group, or Kafka denies access.
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
                    f"Kafka has ended this activator's membership in its consumer group: {error.str()}. Check whether "
                    "another activator runs on a copy of the state directory."
                )
            else:
                self._take_problem(error)
        self._probe()
        return messages

    def is_old(self, message: Message) -> bool:
        """Returns whether a record was in the topic before this member got its share."""
        partition, offset = message.partition(), message.offset()
        if partition is None or offset is None or partition not in self._old_ends:
            return True
        return offset < self._old_ends[partition]

    def done(self, messages: list[Message]) -> None:
        """Stores the offsets of records, so that the records do not come again."""
        for message in messages:
            # The partition may belong to another member by now. Then the records come again, to that member.
            with contextlib.suppress(KafkaException):
                self._consumer.store_offsets(message)

    def close(self) -> None:
        """Commits the stored offsets, and leaves the group. Records with uncommitted offsets come again, as repeats."""
        # Consumer.close waits 10 s for a Kafka that does not answer, and takes no time-out.
        with contextlib.suppress(TimeoutError, KafkaException):
            within(GRACE_S, self._leave)

    def _leave(self) -> None:
        with contextlib.suppress(KafkaException):  # a member that was fenced
            leave(self._consumer)  # commits too
        self._consumer.close()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._old_ends = {}
        for each in partitions:
            if is_asked():
                break
            # If a partition's end is not known, all its records count as old. Then nothing is started for them until
            # the view has caught up.
            with contextlib.suppress(KafkaException):
                self._old_ends[each.partition] = end_offset(consumer, each)
        self.is_assigned = True

    def _on_error(self, error: KafkaError) -> None:
        self._denials(error)
        # Errors that follow a refusal say less than the refusal.
        if denial(error) or (error.code() == KafkaError._ALL_BROKERS_DOWN and self.problem is None):
            self._take_problem(error)

    def _take_problem(self, error: KafkaError) -> None:
        denied = denial(error)
        if isinstance(denied, RightMissingError):
            raise denied
        self.problem = reason_of(error, self._servers, self._denials)

    def _probe(self) -> None:
        """Checks during an outage whether Kafka is back. Without records, nothing else would show that."""
        now_s = time.monotonic()
        if self.problem is None or now_s < self._probe_s:
            return
        self._probe_s = now_s + _PROBE_INTERVAL_S
        with contextlib.suppress(KafkaException):
            found = self._consumer.list_topics(self._topic, timeout=_PROBE_TIMEOUT_S).topics[self._topic]
            self.problem = reason_of(found.error, self._servers, self._denials) if found.error is not None else None


def notified(record: Activation, is_old: bool) -> Notified:
    """Returns a notification in the form that decisions use."""
    reason = record.reason or ""
    return Notified(record.notification_id, record.sequence, record.post_time, reason, record.unread_messages, is_old)


class MonitorsView(LatestRows[ViewRow]):
    """The latest row of every queue monitor.

    Attributes:
        clock_ms: How much the activator's clock is ahead of the wall clock. The difference changes if the wall clock is
            set or the machine is suspended after the activator's start.
    """

    clock_ms: int = 0

    def __init__(self, cluster: Cluster, topic: str, say: Callable[[str], None]) -> None:
        """Starts to read.

        Args:
            cluster: The Kafka cluster.
            topic: The topic queue-monitors.
            say: Called with a line about a record that is not a row.

        Raises:
            UserError: The topic is missing, or Kafka cannot be reached.
        """
        super().__init__("row of a queue monitor", self._decode, say)
        self._follower = TopicFollower(cluster, [topic], Start.BEGINNING)

    def read_to_end(self) -> None:
        """Reads all rows that exist now."""
        for message in self._follower.to_end():
            self.take(message)

    def take_changed(self) -> set[str]:
        """Reads new rows without waiting; returns the queues whose rows have changed since the last call."""
        changed = set()
        for _ in range(_MAX_ROWS):
            message = self._follower.poll(0)
            if message is None:
                break
            if (queue := self.take(message)) is not None:
                changed.add(queue)
        return changed

    def row(self, queue: str) -> ViewRow | None:
        """Returns the queue's row, by the activator's clock; None if the queue has no row."""
        return self.rows.get(queue)

    def observed(self) -> set[str]:
        """Returns the queues that stand for consumer groups."""
        return {queue for queue, row in self.rows.items() if row.is_observed}

    def close(self) -> None:
        """Stops reading."""
        self._follower.__exit__(None, None, None)

    def _decode(self, message: Message) -> tuple[str, ViewRow | None]:
        """Converts a row to the activator's clock when the row comes: the wall clock may be set later."""
        queue, row = decode_row(message)
        if row is None:
            return queue, None
        # If the wall clock was set back after the row was written, the row's time may be in the future.
        early_ms = min(0, wall_clock.now_ms() - row.as_of_ms)
        return queue, row.moved(self.clock_ms + early_ms)


def decode_row(message: Message) -> tuple[str, ViewRow | None]:
    """Decodes a queue's name and its row, which is None for a tombstone. Raises InvalidRecordError."""
    key, value = message.key() or b"", message.value()
    queue = key.decode(errors="replace")
    if not is_queue_name(queue) or queue.encode() != key:
        raise InvalidRecordError("its key is not a queue name")
    if value is None:
        return queue, None
    row = decode_json(_row_decoder, value)
    as_of_ms = NEVER_MS if row.update_time is None else _instant_ms(row.update_time)
    found = ViewRow(row.activation_sequence, row.state, row.unread_messages, as_of_ms=as_of_ms)
    return queue, found if row.members is None else _with_group(found, row, row.members)


def _with_group(found: ViewRow, row: _MonitorRow, members: int) -> ViewRow:
    """Returns a row with the facts that an observer knows about the consumer group."""
    has_committed = (row.last_commit_time or "") > (row.last_activated_time or "")
    is_unknown = row.one_more is None
    members = 0 if is_unknown else members
    found = replace(found, members=members, has_committed=has_committed, is_unknown=is_unknown, is_observed=True)
    if row.one_more is not False or row.idle_since is None or row.update_time is None:
        return found
    return replace(found, idle_since_ms=_instant_ms(row.idle_since))


def _instant_ms(iso: str) -> int:
    if (instant_ms := iso_ms(iso)) is None:
        raise InvalidRecordError(f"{iso!r} is no time")
    return instant_ms
