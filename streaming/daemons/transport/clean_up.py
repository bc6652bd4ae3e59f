"""Deletes the records that no program needs any more, as the router has decided."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec

from streaming.core.conversations.decisions import CleanUp
from streaming.daemons.transport.share import Partition
from streaming.kafka.access import denial
from streaming.kafka.admin import ADMIN_TIMEOUT_S, Admin
from streaming.wire.topics import Topics


class CleanUps:
    """Requests to delete records. `resume` repeats those that have failed, unless a later one has replaced them."""

    def __init__(self, admin: Admin, topics: Topics, say: Callable[[str], None]) -> None:
        self._admin = admin
        self._topics = topics
        self._say = say
        # Topic and partition -> the request under way, and what repeats it.
        self._open: dict[str, tuple[Future[object], Callable[[], None]]] = {}
        self._asked: dict[int, tuple[Future[ListOffsetsResultInfo], int, Callable[[], None]]] = {}
        self._failed: dict[str, Callable[[], None]] = {}
        self._has_warned = False

    def start(self, partition: Partition, offset: int, clean_up: CleanUp) -> None:
        """Asks Kafka to delete what a committed CLEAN_UP allows, except messages that the router may not know of.

        Args:
            partition: The partition.
            offset: The offset of the CLEAN_UP's record.
            clean_up: The decision.
        """
        topics, number = self._topics, partition.number
        held = partition.carrying.position.held
        limit = clean_up.messages if held is None else min(clean_up.messages, held)
        self._delete(topics.service_messages, number, limit)
        self._delete(topics.service_incoming, number, clean_up.incoming)
        # The decisions of the last batches stay in any case, because they say how far the router had read.
        if partition.cleaned_up_to is not None and clean_up.decided_ms > 0:
            self._find_decisions(number, clean_up.decided_ms, partition.cleaned_up_to)
        partition.cleaned_up_to = offset

    def look(self) -> None:
        """Looks for answers, and warns of the first failure."""
        topic = self._topics.service_decisions
        for number, (asked, limit, again) in [*self._asked.items()]:
            if asked.done():
                del self._asked[number]
                problem = asked.exception()
                if problem is not None:
                    self._fail(f"{topic}[{number}]", problem, again)
                else:
                    self._delete(topic, number, min(asked.result().offset, limit))
        for place, (future, again) in [*self._open.items()]:
            if future.done():
                del self._open[place]
                error = future.exception()
                if error is not None:
                    self._fail(place, error, again)

    def resume(self) -> int:
        """Repeats the requests that have failed. Returns their number."""
        failed, self._failed = self._failed, {}
        for again in failed.values():
            again()
        return len(failed)

    def _find_decisions(self, number: int, decided_ms: int, limit: int) -> None:
        """Asks Kafka for the first decision from an instant on. Those before it, and before the limit, are deleted."""
        place = TopicPartition(self._topics.service_decisions, number)
        again = partial(self._find_decisions, number, decided_ms, limit)
        self._failed.pop(f"{place.topic}[{number}]", None)
        spec = OffsetSpec.for_timestamp(decided_ms)
        try:
            futures = self._admin.client.list_offsets({place: spec}, request_timeout=ADMIN_TIMEOUT_S)
        except KafkaException as error:
            self._fail(f"{place.topic}[{number}]", error, again)
        else:
            self._asked[number] = futures[place], limit, again

    def _delete(self, topic: str, number: int, offset: int) -> None:
        if offset <= 0:
            return
        place, name = TopicPartition(topic, number, offset), f"{topic}[{number}]"
        again = partial(self._delete, topic, number, offset)
        self._failed.pop(name, None)
        try:
            futures = self._admin.client.delete_records([place], request_timeout=ADMIN_TIMEOUT_S)
        except KafkaException as error:
            self._fail(name, error, again)
        else:
            self._open[name] = futures[place], again

    def _fail(self, place: str, error: BaseException, again: Callable[[], None]) -> None:
        """Keeps a request that has failed, to be repeated. Warns of the first one."""
        self._failed[place] = again
        if self._has_warned:
            return
        self._has_warned = True
        reason = (denial(error.args[0]) or error.args[0].str()) if isinstance(error, KafkaException) else error
        self._say(f"warning: records that are no longer needed cannot be deleted from {place}: {reason}")
