"""The views of the router: endpoints, held messages, and how far the router has read."""

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import msgspec
from confluent_kafka import Message
from confluent_kafka.admin import AclOperation

from streaming.core.conversations.conversation import SPOKEN_STEP_MS
from streaming.core.times import iso_time
from streaming.errors import UserError
from streaming.kafka.access import AccessDeniedError
from streaming.kafka.admin import LATEST, Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.last_records import last_records
from streaming.kafka.latest_rows import LatestRows
from streaming.kafka.topic_follower import Start, TopicFollower, only_of_keys
from streaming.wire import service_progress
from streaming.wire.record_decoders import InvalidRecordError, decode_json
from streaming.wire.service_progress import decode_progress
from streaming.wire.service_views import EndpointRow, TransmissionRow, decode_endpoint, decode_transmission
from streaming.wire.topics import Topics

Row = TypeVar("Row")
# The key of a row of held messages, the row, and all its fields: a newer router may have written more.
Transmission = tuple[str, TransmissionRow, dict[str, Any]]

# An identifier that is a complete UUID is not a beginning of others, so only its own partition is read.
_WHOLE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
# Behind the newest valid record there may be invalid records, but fewer than this.
_PROGRESS_LOOKED_AT = 100
# Identifiers that an error names.
_EXAMPLES = 3

_fields_decoder = msgspec.json.Decoder(dict[str, Any])
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Selection:
    """The conditions of the endpoints that a command concerns.

    Attributes:
        conversation_id: The conversation; None: any.
        is_initiator: Whether the endpoint is the initiator; None: any side.
        service: The service of the endpoint; None: any.
        far_service: The service of the far side; None: any.
        states: The states; empty: any.
        idle_before: The latest time of a program's last statement, as ISO 8601; None: any.
    """

    conversation_id: str | None = None
    is_initiator: bool | None = None
    service: str | None = None
    far_service: str | None = None
    states: Collection[str] = ()
    idle_before: str | None = None

    def has(self, row: EndpointRow) -> bool:
        """Returns whether an endpoint meets all conditions."""
        return (
            self.conversation_id in (None, row.conversation_id)
            and self.is_initiator in (None, row.is_initiator)
            and self.service in (None, row.service)
            and self.far_service in (None, row.far_service)
            and (not self.states or row.state in self.states)
            and (self.idle_before is None or row.idle_since <= self.idle_before)
        )


def idle_before(now_ms: int, idle_ms: int) -> str:
    """Returns the latest time of a last statement in a row whose endpoint is certainly idle for `idle_ms`."""
    return iso_time(max(0, now_ms - idle_ms - SPOKEN_STEP_MS))


@dataclass(frozen=True)
class Viewed:
    """Endpoints, and the messages that they hold for their far sides.

    Attributes:
        endpoints: Key -> row.
        values: Key -> the value of the row's record.
        transmissions: The held messages of all conversations that were read, oldest first.
        services: The services of all endpoints that were read, and of their far sides.
    """

    endpoints: Mapping[str, EndpointRow]
    values: Mapping[str, bytes]
    transmissions: Sequence[Transmission]
    services: Collection[str] = ()

    @cached_property
    def held(self) -> Mapping[str, int]:
        """Returns key of an endpoint -> number of messages that it holds."""
        return {key: row.messages for key, row, _ in self.transmissions}

    def fields(self, key: str) -> dict[str, Any]:
        """Returns all fields of a row, also those that only a newer router writes, and the number of held messages."""
        return {**decode_json(_fields_decoder, self.values[key]), "held_messages": self.held.get(key, 0)}


def read_endpoints(kafka: Cluster, topics: Topics, selection: Selection) -> Viewed:
    """Returns the selected endpoints. The endpoint that has been idle for longest is the first.

    Raises:
        UserError: Kafka cannot be reached or denies access, or a topic is missing.
    """
    values = _read(kafka, topics.service_conversations, "row of an endpoint", selection.conversation_id)
    rows = [*_decoded(values, decode_endpoint)]
    found = [(key, row) for key, row in rows if selection.has(row)]
    found.sort(key=lambda each: (each[1].idle_since, each[0]))
    services = {name for _, row in rows for name in (row.service, row.far_service)}
    return Viewed(dict(found), values, read_transmissions(kafka, topics, selection.conversation_id), services)


def identified(kafka: Cluster, topics: Topics, given: str) -> str:
    """Returns the only identifier of a conversation that begins with a text; the text itself if there is none.

    Raises:
        UserError: Several identifiers begin with the text; Kafka cannot be reached or denies access, or a topic is
            missing.
    """
    if not _WHOLE.fullmatch(given):
        values = _read(kafka, topics.service_conversations, "row of an endpoint", None)
        return the_one(given, {row.conversation_id for _, row in _decoded(values, decode_endpoint)})
    return given


def the_one(given: str, identifiers: Iterable[str]) -> str:
    """Returns the only identifier that begins with a text; the text if none does. Raises UserError for several."""
    found = sorted(each for each in identifiers if given and each.startswith(given))
    if given in found or not found:
        return given
    if len(found) > 1:
        examples = ", ".join(found[:_EXAMPLES])
        raise UserError(f"{len(found):,} conversations begin with {given!r}, such as {examples}. Give more of one.")
    return found[0]


def read_transmissions(kafka: Cluster, topics: Topics, conversation_id: str | None = None) -> list[Transmission]:
    """Returns held messages, oldest first. Given a conversation, reads only the conversation's partition.

    Raises:
        UserError: Kafka cannot be reached or denies access, or a topic is missing.
    """
    values = _read(kafka, topics.service_transmissions, "row of held messages", conversation_id)
    found = [
        (key, row, decode_json(_fields_decoder, values[key])) for key, row in _decoded(values, decode_transmission)
    ]
    found.sort(key=lambda each: (each[1].held_since or "", each[0]))
    return found


@dataclass(frozen=True)
class Sent:
    """The messages that programs and other instances have sent to services.

    Attributes:
        is_any: Whether there ever was a message. True if this user may not see that.
        is_unread: Whether the router has not read all of them yet. False if this user may not see that.
    """

    is_any: bool
    is_unread: bool


def sent(kafka: Cluster, topics: Topics) -> Sent:
    """Returns whether messages were sent to services, and whether the router has read them.

    Raises:
        UserError: Kafka cannot be reached.
    """
    admin = Admin(kafka)
    names = topics.service_messages, topics.service_incoming
    try:
        partitions = admin.find_topics(dict.fromkeys(names, (AclOperation.DESCRIBE,)))
        ends = {name: admin.offsets(name, count, LATEST) for name, count in partitions.items()}
    except AccessDeniedError:
        return Sent(is_any=True, is_unread=False)
    is_any = any(map(any, ends.values()))
    return Sent(is_any, is_any and _is_unread(kafka, topics, ends))


def _is_unread(kafka: Cluster, topics: Topics, ends: Mapping[str, Sequence[int]]) -> bool:
    """Returns whether the router's last batch has ended before these ends of topics; False if its end is not known."""
    try:
        read = router_progress(kafka, topics)
    except UserError as error:
        _log.info("how far the router has read is unknown: %s", error)
        return False
    return any(
        end > read.get(name.removeprefix(topics.prefix), {}).get(number, 0)
        for name, of_topic in ends.items()
        for number, end in enumerate(of_topic)
    )


def router_progress(kafka: Cluster, topics: Topics) -> dict[str, dict[int, int]]:
    """Returns topic without the prefix -> partition -> the offset at which the router's newest batch has ended.

    Raises:
        UserError: Kafka cannot be reached or denies access, or the topic is missing.
    """
    found: dict[str, dict[int, int]] = {}
    for record in last_records(kafka, topics.service_progress, 1, _PROGRESS_LOOKED_AT):
        if record.key() == service_progress.KEY:
            with suppress(InvalidRecordError):
                ends = decode_progress(record.value()).ends
                found = {topic: {int(number): end for number, end in each.items()} for topic, each in ends.items()}
    return found


def _read(kafka: Cluster, topic: str, wanted: str, conversation_id: str | None) -> dict[str, bytes]:
    """Returns the last record of each key."""
    latest = LatestRows(wanted, _key_and_value, _warn)
    offsets = None if conversation_id is None else only_of_keys(kafka, topic, [conversation_id])
    with TopicFollower(kafka, [topic], Start.BEGINNING, offsets=offsets) as follower:
        for message in follower.to_end():
            latest.take(message)
    return latest.rows


def _key_and_value(message: Message) -> tuple[str, bytes | None]:
    return (message.key() or b"").decode(errors="replace"), message.value()


def _decoded(values: Mapping[str, bytes], decode: Callable[[bytes], Row]) -> Iterator[tuple[str, Row]]:
    for key, value in values.items():
        try:
            yield key, decode(value)
        except InvalidRecordError as error:
            _warn(f"the record with key {key!r} is passed over: {error}")


def _warn(line: str) -> None:
    _log.warning("%s", line)
