"""A member of a consumer group whose offsets are committed in Kafka transactions.

The members share the partitions of a topic. Each record takes effect once, because a transaction commits its offset
together with the records that it causes.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from streaming.errors import UserError
from streaming.kafka.access import denial
from streaming.kafka.clients import READS_COMMITTED, Cluster
from streaming.kafka.errors import LASTING_ERRORS
from streaming.system.stop_signals import GRACE_S
from streaming.system.threads import within

# Defaults that a user's properties may override. A member that was killed keeps its share, and makes joining members
# wait, until its session ends. Kafka's defaults are 3 s and 45 s, and a task that no host takes is lost after 60 s.
_DEFAULTS = {"heartbeat.interval.ms": 500, "session.timeout.ms": 10_000}

# Without these properties, a record could take effect twice or never. With the cooperative strategy, a member could not
# go back to the offset at which it has to begin.
_FIXED = READS_COMMITTED | {
    "auto.offset.reset": "earliest",
    "partition.assignment.strategy": "range",
    "group.protocol": "classic",
    "fetch.wait.max.ms": 100,
}

# The longest wait for an answer of Kafka, so that the caller can react to a signal and ask again.
ANSWER_TIMEOUT_S = 1.0

# Longest wait for a member to leave its group. If Kafka does not answer, others wait for the end of its session.
_LEAVE_TIMEOUT_S = 2.0
_LEAVE_POLL_INTERVAL_S = 0.02

Rebalanced = Callable[[Consumer, list[TopicPartition]], None]


def leave(consumer: Consumer) -> None:
    """Leaves a group at once, so that the consumer no longer counts as a member. The caller then closes the consumer.

    If a consumer with a `group.instance.id` is only closed, it stays a member until its session ends. But `unsubscribe`
    sends the request to leave, at which the client drops its member id, and `close` waits for the answer.
    """
    consumer.unsubscribe()
    deadline_s = time.monotonic() + _LEAVE_TIMEOUT_S
    while consumer.memberid() and time.monotonic() < deadline_s:
        consumer.poll(_LEAVE_POLL_INTERVAL_S)


class GroupMember:
    """A member of a consumer group.

    Attributes:
        consumer: The member's consumer, for reading.
    """

    def __init__(  # noqa: PLR0913, PLR0917  (the group, and the answers to it)
        self,
        cluster: Cluster,
        topic: str,
        group_id: str,
        on_assign: Rebalanced,
        on_revoke: Rebalanced,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        """Starts to join the group. The group assigns partitions later, while the caller polls the consumer.

        Args:
            cluster: The Kafka cluster.
            topic: The topic.
            group_id: The consumer group.
            on_assign: Called when the group assigns partitions to this member.
            on_revoke: Called when the group revokes partitions.
            defaults: Further properties that the user's properties override.

        Raises:
            UserError: The client rejects its properties.
        """
        self._topic = topic
        self._on_assign, self._on_revoke = on_assign, on_revoke
        self.consumer = cluster.consumer(_FIXED | {"group.id": group_id}, {**_DEFAULTS, **(defaults or {})})
        self._join()

    def check(self, message: Message) -> bool:
        """Returns whether a message of the consumer is a record.

        Raises:
            UserError: The message is an error from which the consumer does not recover.
        """
        error = message.error()
        if error is None:
            return True
        if error.fatal() or error.code() in LASTING_ERRORS:
            raise UserError(f"topic {self._topic} cannot be read: {denial(error) or error.str()}")
        return False

    def committed(self, partitions: list[TopicPartition]) -> list[TopicPartition] | None:
        """Returns the committed offsets of partitions; None if Kafka does not answer in time.

        Because of `isolation.level`, Kafka first waits for the end of transactions that are being committed. If that
        takes longer than ANSWER_TIMEOUT_S, the caller asks again. In between, the caller can react to a signal.
        """
        try:
            found = self.consumer.committed(partitions, timeout=ANSWER_TIMEOUT_S) if partitions else []
        except KafkaException:
            return None
        return None if any(each.error is not None for each in found) else found

    def group_metadata(self) -> object | None:
        """Returns the metadata with which a transaction commits offsets as this member; None after an expulsion.

        The member id must be read last: the metadata of an expelled member names no member, and Kafka would accept
        offsets with such metadata as if there were no group.
        """
        metadata = self.consumer.consumer_group_metadata()
        member_id: str | None = self.consumer.memberid()  # may be None, unlike in confluent-kafka's type stub
        return metadata if member_id else None

    def rejoin(self) -> None:
        """Leaves the group and joins it again as another member, because the outcome of a transaction is unknown.

        If the transaction still tries to commit its offsets, Kafka refuses them, because their member has left.
        """
        self.consumer.unsubscribe()
        self._join()

    def close(self) -> None:
        """Leaves the group at once, so that other members take over."""
        # Consumer.close waits 5 s for a Kafka that does not answer.
        with suppress(TimeoutError, KafkaException):
            within(GRACE_S, self.consumer.close)

    def _join(self) -> None:
        self.consumer.subscribe([self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke)
