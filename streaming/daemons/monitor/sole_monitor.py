"""Keeps a second monitor from the topics of one that runs: it would notify each activation a second time.

Monitors are members of a consumer group on the ticks' topic, and read nothing by it. Whoever has the topic's partitions
is the one that may run. Kafka's cooperative assignment leaves them with the member that has them, so a newcomer gets
none. The member's id (`group.instance.id`) is that of the checkpoint: a monitor that was killed has its place again at
once when it is started again, and another monitor has it once Kafka has missed the old one for the session time-out.
"""

import logging
import os
import re
import socket
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, TopicPartition

from streaming.errors import UserError
from streaming.kafka.access import RightMissingError, denial
from streaming.kafka.admin import Admin, GroupMember
from streaming.kafka.clients import Cluster

# Kafka's brokers accept nothing shorter than 6 s (group.min.session.timeout.ms); a machine that is busy may be silent
# for some seconds.
SESSION_TIMEOUT_S = 10.0
# How soon a monitor hears that it has lost its place. Kafka's default is 3 s.
_HEARTBEAT_INTERVAL_S = 1.0
# After this time a monitor that was killed is no member any more.
_PATIENCE_S = SESSION_TIMEOUT_S + 3.0
# Ordinarily a group's first member waits for 3 s (group.initial.rebalance.delay.ms), and a new cluster first makes its
# topic of groups.
_JOIN_TIMEOUT_S = 60.0
_POLL_INTERVAL_S = 0.1
_LOOK_INTERVAL_S = 1.0
# The main thread asks, and must hear Ctrl-C.
_LOOK_TIMEOUT_S = 2.0
_LEAVE_TIMEOUT_S = 2.0
_LEAVE_POLL_INTERVAL_S = 0.02
# A Kafka that does not answer is given up then; the other monitors wait for the end of the session.
_CLOSE_TIMEOUT_S = 3.0
_NOT_FOR_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_NAME_LENGTH = 64

# What consumer group all monitors of a topic prefix are in; the prefix stands before it.
GROUP_ID = "queue-activation-monitor"

_ADVICE = "Stop one of them, or give it a --topic-prefix of its own"

_log = logging.getLogger(__name__)


def client_id(location: str) -> str:
    """Returns how a monitor calls itself to others: host, process, and the last part of its checkpoint's location."""
    parts = (socket.gethostname(), str(os.getpid()), location.rstrip("/").rpartition("/")[2])
    return "_".join(_NOT_FOR_A_NAME.sub("-", part)[:_MAX_NAME_LENGTH] for part in parts)


class SoleMonitor:
    """A place that one monitor of a topic prefix can have; kept by a thread of its own while the block runs."""

    def __init__(self, cluster: Cluster, admin: Admin, group_id: str, topic: str, partitions: int) -> None:
        """Prepares it; `join` asks for the place.

        Args:
            cluster: Where the topics are.
            admin: Tells who the other members are.
            group_id: The consumer group of the monitors.
            topic: The topic whose partitions are the place.
            partitions: How many it has.
        """
        self._cluster = cluster
        self._admin = admin
        self._group_id = group_id
        self._topic = topic
        self._partitions = partitions
        self._owned: set[int] = set()
        # In a topic of several partitions some go to a newcomer. It must have all of them to begin, or to begin again;
        # whoever has begun goes on with one.
        self._least = partitions
        self._holds = threading.Event()
        self._is_doubted = False
        self._is_fenced = False
        self._is_stopped = threading.Event()
        self._problem: Exception | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Gives the place away at once, for any other monitor; a Kafka that does not answer is not waited for."""
        self._is_stopped.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_TIMEOUT_S)

    def join(self, checkpoint_id: str, name: str) -> None:
        """Asks for the place, and returns at once.

        Args:
            checkpoint_id: Tells the monitor from others. One with the same id loses its place to this one.
            name: What others are told of the monitor, see `client_id`.

        Raises:
            UserError: The client does not take its properties.
        """
        self._checkpoint_id = checkpoint_id
        self._client_id = name
        config = {
            "client.id": name,
            "group.id": self._group_id,
            "group.instance.id": checkpoint_id,
            "group.protocol": "classic",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
            "heartbeat.interval.ms": str(int(_HEARTBEAT_INTERVAL_S * 1000)),
            "enable.auto.commit": "false",
        }
        consumer = self._cluster.consumer(config)
        consumer.subscribe([self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)
        self._thread = threading.Thread(target=self._run, args=(consumer,), name="sole-monitor", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Waits for the place.

        Raises:
            UserError: Another monitor has the place, or Kafka gives this one none.
        """
        begin_s = time.monotonic()
        next_look_s = begin_s + _LOOK_INTERVAL_S
        is_told = False
        while not self._holds.wait(_POLL_INTERVAL_S):
            self.check()
            now_s = time.monotonic()
            if now_s < next_look_s:
                continue
            next_look_s = now_s + _LOOK_INTERVAL_S
            others = self._others()
            if others and now_s >= begin_s + self._patience_s():
                raise UserError(
                    f"another monitor runs on the same topics: {_names(others)}. Two would notify each activation "
                    f"twice. {_ADVICE}"
                )
            if now_s >= begin_s + _JOIN_TIMEOUT_S:
                raise UserError(
                    f"Kafka has not let this monitor into its consumer group {self._group_id} for "
                    f"{_JOIN_TIMEOUT_S:.0f} s. Check that the brokers are well, and start again"
                )
            if others and not is_told:
                is_told = True
                _log.warning(
                    "another monitor is on the same topics: %s. Waiting for its end, up to %.0f s",
                    _names(others),
                    self._patience_s(),
                )

    def check(self) -> None:
        """Raises why the monitor must not go on, if that is so.

        Raises:
            UserError: Another monitor has the place now, or Kafka does not allow this user the consumer group.
            Exception: The thread has ended by an error.
        """
        if self._problem is not None:
            raise self._problem

    def has_problem(self) -> bool:
        """Returns whether `check` would raise."""
        return self._problem is not None

    def _run(self, consumer: Consumer) -> None:
        try:
            self._keep(consumer)
        except Exception as error:
            self._problem = error
        # It waits 10 s for a Kafka that does not answer.
        consumer.close()

    def _keep(self, consumer: Consumer) -> None:
        next_look_s = 0.0
        while not self._is_stopped.is_set() and self._problem is None:
            message = consumer.poll(_POLL_INTERVAL_S)
            error = message.error() if message is not None else None
            if error is not None:
                self._take(error)
            if self._is_doubted and time.monotonic() >= next_look_s:
                next_look_s = time.monotonic() + _LOOK_INTERVAL_S
                self._look_for_a_successor()
        if not self._is_fenced:
            self._leave(consumer)

    def _take(self, error: KafkaError) -> None:
        if error.code() == KafkaError._FATAL:
            # A consumer has no other fatal error than FENCED_INSTANCE_ID.
            self._is_fenced = True
            self._problem = UserError(
                "another monitor has been started on the same checkpoint, and has taken this one's place. Run only one "
                f"of them ({error.str()})"
            )
            return
        denied = denial(error)
        # Who is not let in at all may be so again; who lacks a right waits in vain.
        if isinstance(denied, RightMissingError) or (denied is not None and not self._holds.is_set()):
            self._problem = denied

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # From any offset, as nothing is read: then Kafka is not asked for one.
        consumer.incremental_assign([TopicPartition(self._topic, each.partition, 0) for each in partitions])
        consumer.pause(partitions)
        self._owned |= {each.partition for each in partitions}
        if len(self._owned) >= self._least:
            self._least = 1
            self._holds.set()
        self._is_doubted = self._holds.is_set() and len(self._owned) < self._least

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._owned -= {each.partition for each in partitions}

    def _on_lost(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        # Kafka does not answer, or has not heard of this member for too long. If nobody else came it joins again.
        self._owned.clear()
        self._least = self._partitions

    def _look_for_a_successor(self) -> None:
        """Ends the monitor if it has lost its place to another one, and not because the topic is gone."""
        others = [each for each in self._others() if each.partitions]
        if others:
            self._problem = UserError(
                f"Kafka has not heard of this monitor for more than {SESSION_TIMEOUT_S:.0f} s, and meanwhile another "
                f"one has been started on the same topics: {_names(others)}. {_ADVICE}"
            )

    def _others(self) -> list[GroupMember]:
        """Returns the other monitors, those that have a partition if there are any; none if Kafka does not answer."""
        try:
            members = self._admin.members(self._group_id, _LOOK_TIMEOUT_S)
        except UserError:
            return []
        others = [each for each in members if each.instance_id != self._checkpoint_id]
        return [each for each in others if each.partitions] or others

    def _patience_s(self) -> float:
        # Two that start at once on a topic of several partitions get a part of them each, and one must be first to go.
        return _PATIENCE_S * (2 if 0 in self._owned else 1)

    def _leave(self, consumer: Consumer) -> None:
        """Leaves the group: a consumer with an id that is only closed is a member until its session has ended."""
        consumer.unsubscribe()
        deadline_s = time.monotonic() + _LEAVE_TIMEOUT_S
        while time.monotonic() < deadline_s and self._is_member():
            consumer.poll(_LEAVE_POLL_INTERVAL_S)

    def _is_member(self) -> bool:
        try:
            members = self._admin.members(self._group_id, _LOOK_TIMEOUT_S)
        except UserError:
            return False
        me = (self._checkpoint_id, self._client_id)
        return any((each.instance_id, each.client_id) == me for each in members)


def _names(members: Sequence[GroupMember]) -> str:
    return "; ".join(f"{each.client_id} at {each.host}, its checkpoint's id {each.instance_id}" for each in members)
