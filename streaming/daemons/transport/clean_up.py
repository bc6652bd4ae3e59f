"""Deletes the records that no program needs any more. The router decides which records these are."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from streaming.core.conversations.decisions import CleanUp
from streaming.daemons.transport.share import Partition
from streaming.kafka.access import denial
from streaming.kafka.admin import ADMIN_TIMEOUT_S, Admin
from streaming.wire.topics import Topics

# Makes a request.
Ask = Callable[[], Future[Any]]
# Takes the answer to a request.
Then = Callable[[Any], None]


class CleanUps:
    """Requests to delete records. `resume` repeats a failed request, unless a later request has replaced it."""

    def __init__(self, admin: Admin, topics: Topics, say: Callable[[str], None]) -> None:
        self._admin = admin
        self._topics = topics
        self._say = say
        # Topic and partition -> the request under way, the function for its answer, and the function that repeats it.
        self._open: dict[str, tuple[Future[Any], Then, Callable[[], None]]] = {}
        self._failed: dict[str, Callable[[], None]] = {}
        self._has_warned = False

    def start(self, partition: Partition, offset: int, clean_up: CleanUp) -> None:
        """Asks Kafka to delete the records that a committed CLEAN_UP names, except messages that were returned.

        The router may not know yet that this transport has returned these messages.

        Args:
            partition: The partition.
            offset: The offset of the CLEAN_UP's record.
            clean_up: The decision.
        """
        topics, number = self._topics, partition.number
        held = partition.carrying.position.keep_from
        limit = clean_up.messages if held is None else min(clean_up.messages, held)
        self._delete(topics.service_messages, number, limit)
        self._delete(topics.service_incoming, number, clean_up.incoming)
        # The decisions of the last batches stay in any case, because they show how far the router had read.
        if partition.cleaned_up_to is not None and clean_up.decided_ms > 0:
            self._delete_decisions(number, clean_up.decided_ms, partition.cleaned_up_to)
        partition.cleaned_up_to = offset

    def look(self) -> None:
        """Takes the answers that have arrived, and warns of the first failure."""
        for place, (future, then, again) in [*self._open.items()]:
            if future.done():
                del self._open[place]
                error = future.exception()
                if error is None:
                    then(future.result())
                else:
                    self._fail(place, error, again)

    def resume(self) -> int:
        """Repeats the requests that have failed. Returns the number of these requests."""
        failed, self._failed = self._failed, {}
        for again in failed.values():
            again()
        return len(failed)

    def _delete_decisions(self, number: int, decided_ms: int, limit: int) -> None:
        """Asks Kafka for the first decision from an instant on. Deletes the decisions before it, up to `limit`."""
        place = TopicPartition(self._topics.service_decisions, number)
        spec = {place: OffsetSpec.for_timestamp(decided_ms)}
        self._request(
            place,
            lambda: self._admin.client.list_offsets(spec, request_timeout=ADMIN_TIMEOUT_S)[place],
            lambda first: self._delete(place.topic, number, min(first.offset, limit)),
        )

    def _delete(self, topic: str, number: int, offset: int) -> None:
        place = TopicPartition(topic, number, offset)
        if offset > 0:
            self._request(
                place,
                lambda: self._admin.client.delete_records([place], request_timeout=ADMIN_TIMEOUT_S)[place],
                lambda _: None,
            )

    def _request(self, of: TopicPartition, ask: Ask, then: Then) -> None:
        place, again = f"{of.topic}[{of.partition}]", partial(self._request, of, ask, then)
        self._failed.pop(place, None)
        try:
            self._open[place] = ask(), then, again
        except KafkaException as error:
            self._fail(place, error, again)

    def _fail(self, place: str, error: BaseException, again: Callable[[], None]) -> None:
        """Keeps a failed request for `resume`. Warns of the first failure."""
        self._failed[place] = again
        if self._has_warned:
            return
        self._has_warned = True
        reason = (denial(error.args[0]) or error.args[0].str()) if isinstance(error, KafkaException) else error
        self._say(f"warning: records that are no longer needed cannot be deleted from {place}: {reason}")
