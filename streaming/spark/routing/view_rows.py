"""The router's views: rows of compacted topics for definitions, conversations and held messages.

A row is written when a value in it has changed, and deleted together with the thing that it shows.
"""

from typing import Any

import msgspec

from streaming.core.conversations.conversation import INITIATOR, TARGET, Conversation, Why
from streaming.core.conversations.endpoint_states import State
from streaming.core.routing.definitions import Definitions
from streaming.core.times import Clock, instant_or_none, iso_time
from streaming.spark.routing.conversation_store import shown_of
from streaming.wire.output_records import OutputRow
from streaming.wire.service_definitions import view_of
from streaming.wire.service_views import no_acknowledgement
from streaming.wire.topics import Topics

_encode = msgspec.json.Encoder().encode

# The names of sys.conversation_endpoints.state_desc.
STATE_NAMES = {
    State.SO: "STARTED_OUTBOUND",
    State.CO: "CONVERSING",
    State.DI: "DISCONNECTED_INBOUND",
    State.DO: "DISCONNECTED_OUTBOUND",
    State.ER: "ERROR",
    State.CD: "CLOSED",
}
_SIDES = ("initiator", "target")


def definition_rows(before: Definitions, after: Definitions, topics: Topics, batch_ms: int) -> list[OutputRow]:
    """Returns the rows of service-definitions that a batch has changed, and tombstones for removed rows."""
    old, new = view_of(before), view_of(after)
    time = iso_time(batch_ms)
    rows: list[OutputRow] = [
        (topics.service_definitions, key, _encode({**row, "update_time": time}), None, None)
        for key, row in new.items()
        if old.get(key) != row
    ]
    rows += [(topics.service_definitions, key, None, None, None) for key in old if key not in new]
    return rows


def conversation_rows(
    conversation: Conversation, before: tuple[int, int], topics: Topics, partition: int, clock: Clock
) -> list[OutputRow]:
    """Returns the rows of a conversation after a batch.

    Args:
        conversation: The conversation.
        before: The number of messages that were held for the initiator and for the target before the batch.
        topics: The topics.
        partition: The partition of the conversation.
        clock: The shard's clock.
    """
    rows: list[OutputRow] = []
    held_now, _ = shown_of(conversation)
    for side in (INITIATOR, TARGET):
        key = view_key(conversation.conversation_id, side)
        if conversation.is_view_stale and conversation.endpoints[side] is not None:
            value = _encode(_endpoint_fields(conversation, side, clock))
            rows.append((topics.service_conversations, key, value, None, partition))
        # The endpoint of the opposite side holds the messages to a side.
        sender_key, held = view_key(conversation.conversation_id, TARGET - side), held_now[side]
        if held:
            value = _encode(_transmission_fields(conversation, side, held, clock))
            rows.append((topics.service_transmissions, sender_key, value, None, partition))
        elif before[side]:
            rows.append((topics.service_transmissions, sender_key, None, None, partition))
    return rows


def removal_rows(conversation: Conversation, topics: Topics, partition: int) -> list[OutputRow]:
    """Returns the rows that delete the views of a conversation."""
    return [
        (topics.service_conversations, view_key(conversation.conversation_id, side), None, None, partition)
        for side in (INITIATOR, TARGET)
        if conversation.endpoints[side] is not None
    ]


def forgotten_rows(conversation_id: str, topics: Topics, partition: int, *, is_kept: bool) -> list[OutputRow]:
    """Returns the rows that delete the views of a conversation that only a lost checkpoint knew.

    If the conversation is kept, the rows delete only the views of held messages.
    """
    views = [topics.service_transmissions] if is_kept else [topics.service_transmissions, topics.service_conversations]
    return [
        (topic, view_key(conversation_id, side), None, None, partition)
        for topic in views
        for side in (INITIATOR, TARGET)
    ]


def view_key(conversation_id: str, side: int) -> bytes:
    """Returns the key of an endpoint's views."""
    return f"{conversation_id}/{_SIDES[side]}".encode()


def _endpoint_fields(conversation: Conversation, side: int, clock: Clock) -> dict[str, Any]:
    """Returns an endpoint as a row of sys.conversation_endpoints, with additional fields."""
    endpoint, far = conversation.endpoints[side], conversation.endpoints[TARGET - side]
    assert endpoint is not None  # noqa: S101 - told to the type checker
    return {
        "conversation_id": conversation.conversation_id,
        "is_initiator": side == INITIATOR,
        "state": endpoint.state.name,
        "state_desc": STATE_NAMES[endpoint.state],
        "service": conversation.services[side],
        "database": endpoint.database,
        "far_service": conversation.services[TARGET - side],
        "far_database": None if far is None else far.database,
        "far_broker_instance": _far_broker_instance(conversation, TARGET - side),
        "conversation_group_id": endpoint.group_id,
        "send_sequence": conversation.directions[TARGET - side].next_sequence,
        "receive_sequence": conversation.directions[side].due_sequence,
        "lifetime_end": _time(conversation.ends_ms),
        "dialog_timer": _time(endpoint.timer_ms),
        "last_statement": _time(conversation.spoken_ms, clock),
        "update_time": iso_time(clock.batch_ms),
    }


def _transmission_fields(conversation: Conversation, to: int, messages: int, clock: Clock) -> dict[str, Any]:
    """Returns the held messages of a direction, and the reason, as a row of sys.transmission_queue."""
    held, sender, far = conversation.directions[to].held, conversation.endpoints[TARGET - to], conversation.far_at(to)
    reason = "" if held is None else held.text
    if far is not None and (held is None or held.why is Why.SENT_AGAIN):
        reason = no_acknowledgement(far.address, is_sent_again=held is not None)
    return {
        "conversation_id": conversation.conversation_id,
        "is_initiator": to == TARGET,
        "from_service": conversation.services[TARGET - to],
        "from_database": None if sender is None else sender.database,
        "to_service": conversation.services[to],
        "to_broker_instance": _far_broker_instance(conversation, to),
        "messages": messages,
        "held_since": _time(None if held is None else held.since_ms, clock),
        "number": None if held is None else held.number,
        "reason": reason,
        "next_try": _time(conversation.next_try_ms(to), clock),
        "update_time": iso_time(clock.batch_ms),
    }


def _far_broker_instance(conversation: Conversation, side: int) -> str | None:
    """Returns the broker instance that messages to a side name; None for an initiator in this instance."""
    if side == TARGET:
        return conversation.to_broker_instance
    return (conversation.far.broker_instance or None) if conversation.far is not None else None


def _time(instant_ms: int | None, clock: Clock | None = None) -> str | None:
    """Returns the time of an instant of the shard's clock or, without a clock, of the brokers' clock."""
    found = None if instant_ms is None else instant_or_none(instant_ms)
    return None if found is None else iso_time(found if clock is None else clock.wall_ms(found))
