"""Converts a conversation to plain values and back, in the format that a checkpoint keeps.

A snapshot is nested lists of None, bool, int and str. Held messages are stored as differences of numbers and offsets,
so a held message takes two or three bytes. FORMAT_VERSION is the version of this layout, of a shard's whole state, and
of the router's checkpoint.
"""

from collections import deque
from itertools import accumulate
from typing import Any

from streaming.core.conversations.conversation import TARGET, Ahead, Conversation, Direction, Endpoint, Item, Link
from streaming.core.conversations.endpoint_states import State
from streaming.core.conversations.kinds import Kind
from streaming.core.times import FOREVER_MS, NEVER_MS

# 2: conversations with other instances. 3: questions to the configuration service, and mirrored routes. 4: the broker
# instance with which an endpoint speaks, since when a far side is silent and what it knows, open questions, and since
# when messages have been held whose delivery failed more than once.
FORMAT_VERSION = 4

Snapshot = list[Any]

# Two endpoints and two directions.
_PARTS = 4

# By number, for speed: a call of State runs Python code.
_STATES, _KINDS = tuple(State), tuple(Kind)


def take(conversation: Conversation) -> Snapshot:
    """Returns the conversation as plain values."""
    return [
        conversation.conversation_id,
        *conversation.services,
        conversation.to_broker_instance,
        conversation.begun,
        conversation.ends_ms,
        conversation.closed_ms,
        conversation.spoken_ms,
        *[_take_endpoint(endpoint) for endpoint in conversation.endpoints],
        *[_take_direction(direction) for direction in conversation.directions],
        *([] if conversation.link is None else [_take_link(conversation.link)]),
    ]


def restore(snapshot: Snapshot) -> Conversation:
    """Returns the conversation of a snapshot of this FORMAT_VERSION."""
    conversation_id, service, to_service, instance, begun, ends_ms, closed_ms, *parts = snapshot
    # Snapshots of the first routers have no instant of the last statement, and no link.
    spoken_ms = parts.pop(0) if len(parts) > _PARTS else NEVER_MS
    link = parts[_PARTS] if len(parts) > _PARTS else None
    directions = [_restore_direction(part) for part in parts[2:_PARTS]]
    return Conversation(
        conversation_id,
        (service, to_service),
        instance,
        [_restore_endpoint(part) for part in parts[:2]],
        directions,
        begun,
        ends_ms,
        closed_ms,
        spoken_ms,
        _restore_link(link, directions),
    )


def _take_endpoint(endpoint: Endpoint | None) -> Snapshot | None:
    if endpoint is None:
        return None
    return [
        int(endpoint.state),
        endpoint.database,
        endpoint.service_created,
        endpoint.group_id,
        endpoint.timer_ms,
        endpoint.broker_instance,
    ]


def _restore_endpoint(taken: Snapshot | None) -> Endpoint | None:
    if taken is None:
        return None
    # Before format 4 there is no broker instance.
    state, *others = taken
    return Endpoint(_STATES[state], *others)


def _take_link(link: Link) -> Snapshot:
    ahead = [
        [sequence, _KINDS.index(message.kind), message.offset, message.received_ms]
        for sequence, message in link.ahead.items()
    ]
    return [
        link.far_side,
        link.far_instance,
        link.address,
        link.next_sequence,
        link.sent_below,
        link.resend_ms,
        link.resend_after_ms,
        link.has_told_end,
        ahead,
        link.sent_ms,
        link.window,
        link.quiet_ms,
        link.repeats_below,
        link.returned,
        link.received_below,
    ]


def _restore_link(taken: Snapshot | None, directions: list[Direction]) -> Link | None:
    if taken is None:
        return None
    far_side, far_instance, address, next_sequence, sent_below, resend_ms, resend_after_ms, *rest = taken
    # The first versions had no instant of sending, the next ones no window. Before format 4 closed conversations were
    # forgotten whatever their far side knew, nothing was noted of messages that come back, and an Error of the router
    # counted as received.
    later = [NEVER_MS, 0, FOREVER_MS, 0, [], directions[TARGET - far_side].next_sequence]
    has_told_end, ahead, sent_ms, window, quiet_ms, repeats_below, returned, received_below = (
        rest + later[len(rest) - 2 :]
    )
    return Link(
        far_side,
        far_instance,
        address,
        next_sequence,
        sent_below,
        received_below,
        resend_ms,
        resend_after_ms,
        sent_ms,
        window,
        quiet_ms,
        repeats_below,
        has_told_end,
        {sequence: Ahead(_KINDS[kind], offset, received_ms) for sequence, kind, offset, received_ms in ahead},
        [*returned],
    )


def _take_direction(direction: Direction) -> Snapshot | int:
    """Returns a direction; only its next number, if nothing has ever gone wrong and nothing is held."""
    waiting = direction.waiting
    next_sequence = direction.next_sequence
    is_even = direction.due_sequence == next_sequence and direction.round == 1 and not direction.dropped_below
    if is_even and not waiting:
        return next_sequence
    sequences = [item.sequence for item in waiting]
    offsets = [item.offset for item in waiting]
    return [
        next_sequence,
        direction.due_sequence,
        direction.round,
        direction.dropped_below,
        direction.held_since_ms,
        direction.number,
        direction.reason,
        direction.retry_ms,
        direction.returned_below,
        direction.returned_since_ms,
        _differences(sequences),
        _differences(offsets),
        [
            [index, _KINDS.index(item.kind), item.error_code, item.error_text, item.body]
            for index, item in enumerate(waiting)
            if item.kind != Kind.MESSAGE or item.body is not None
        ],
    ]


def _restore_direction(taken: Snapshot | int) -> Direction:
    if isinstance(taken, int):
        return Direction(taken, taken)
    *fields, sequences, offsets, others = taken
    # Before format 4 nothing is noted of what was returned before.
    next_sequence, due_sequence, round_, dropped_below, held_since_ms, number, reason, retry_ms, *returned = fields
    numbers = zip(accumulate(sequences), accumulate(offsets), strict=True)
    items = [Item(sequence, Kind.MESSAGE, offset) for sequence, offset in numbers]
    # Before format 3 there are no bodies.
    for index, kind, error_code, error_text, *body in others:
        item = items[index]
        items[index] = Item(item.sequence, _KINDS[kind], item.offset, error_code, error_text, *body)
    return Direction(
        next_sequence,
        due_sequence,
        round_,
        dropped_below,
        deque(items),
        held_since_ms,
        number,
        reason,
        retry_ms,
        *returned,
    )


def _differences(values: list[int]) -> list[int]:
    return [value - before for before, value in zip([0, *values], values, strict=False)]
