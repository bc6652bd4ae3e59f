"""Deletes the records that no program needs any more, as the router has decided."""

from collections.abc import Callable
from concurrent.futures import Future

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec

from streaming.core.conversations.decisions import CleanUp
from streaming.daemons.transport.share import Partition
from streaming.kafka.access import denial
from streaming.kafka.admin import ADMIN_TIMEOUT_S, Admin
from streaming.wire.topics import Topics


class CleanUps:
    """Requests to delete records. A request that fails is not repeated, because the next CLEAN_UP covers it."""

    def __init__(self, admin: Admin, topics: Topics, say: Callable[[str], None]) -> None:
        self._admin = admin
        self._topics = topics
        self._say = say
        self._open: dict[str, Future[object]] = {}
        self._asked: dict[int, tuple[Future[ListOffsetsResultInfo], int]] = {}
        self._has_warned = False

    def start(self, partition: Partition, offset: int, clean_up: CleanUp) -> None:
        """Asks Kafka to delete what a committed CLEAN_UP allows, except messages that the router may not know of.

        Args:
            partition: The partition.
            offset: The offset of the CLEAN_UP's record.
            clean_up: The decision.
        """
        topics, number = self._topics, partition.number
        self._delete(topics.service_messages, number, min(clean_up.messages, partition.carrying.position.held))
        self._delete(topics.service_incoming, number, clean_up.incoming)
        # The decisions of the last batches stay in any case, because they say how far the router had read.
        if partition.cleaned_up_to is not None and clean_up.decided_ms > 0:
            self._find_decisions(number, clean_up.decided_ms, partition.cleaned_up_to)
        partition.cleaned_up_to = offset

    def look(self) -> None:
        """Looks for answers, and warns of the first failure."""
        topic = self._topics.service_decisions
        for number, (asked, limit) in [*self._asked.items()]:
            if asked.done():
                del self._asked[number]
                problem = asked.exception()
                if problem is not None:
                    self._warn(f"{topic}[{number}]", problem)
                else:
                    self._delete(topic, number, min(asked.result().offset, limit))
        for place, future in [*self._open.items()]:
            if future.done():
                del self._open[place]
                error = future.exception()
                if error is not None:
                    self._warn(place, error)

    def _find_decisions(self, number: int, decided_ms: int, limit: int) -> None:
        """Asks Kafka for the first decision from an instant on. Those before it, and before the limit, are deleted."""
        place = TopicPartition(self._topics.service_decisions, number)
        spec = OffsetSpec.for_timestamp(decided_ms)
        try:
            futures = self._admin.client.list_offsets({place: spec}, request_timeout=ADMIN_TIMEOUT_S)
        except KafkaException as error:
            self._warn(f"{place.topic}[{number}]", error)
        else:
            self._asked[number] = futures[place], limit

    def _delete(self, topic: str, number: int, offset: int) -> None:
        if offset <= 0:
            return
        place = TopicPartition(topic, number, offset)
        try:
            futures = self._admin.client.delete_records([place], request_timeout=ADMIN_TIMEOUT_S)
        except KafkaException as error:
            self._warn(f"{topic}[{number}]", error)
        else:
            self._open[f"{topic}[{number}]"] = futures[place]

    def _warn(self, place: str, error: BaseException) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        reason = (denial(error.args[0]) or error.args[0].str()) if isinstance(error, KafkaException) else error
        self._say(f"warning: records that are no longer needed cannot be deleted from {place}: {reason}")
