"""Converts a conversation to plain values and back, in the format that a checkpoint keeps.

A snapshot is nested lists of None, bool, int and str. Held messages are stored as differences of numbers and offsets,
so a held message takes two or three bytes. FORMAT_VERSION is the version of this layout, of a shard's whole state, and
of the router's checkpoint.
"""

from collections import deque
from itertools import accumulate
from typing import Any

from streaming.core.conversations.conversation import (
    TARGET,
    Ahead,
    Conversation,
    Direction,
    Endpoint,
    FarEndpoint,
    Held,
    Idle,
    Item,
    Returned,
    Sending,
    Unrouted,
    Why,
)
from streaming.core.conversations.delivery import RETURN_AWAITED
from streaming.core.conversations.endpoint_states import State
from streaming.core.conversations.held_messages import LET_GO
from streaming.core.conversations.kinds import Kind
from streaming.core.conversations.transmission import ON_THEIR_WAY, SENT_AGAIN
from streaming.core.times import FOREVER_MS, NEVER_MS, instant_or_none

# 2: conversations with other instances. 3: questions to the configuration service, and mirrored routes. 4: the broker
# instance of an endpoint, the instant since which a far side is silent, the messages that it may repeat, open
# questions, the instant since which messages are held whose delivery failed more than once, and the reason as a number.
FORMAT_VERSION = 4

Snapshot = list[Any]

# Two endpoints and two directions.
_PARTS = 4

# By number, for speed: a call of State runs Python code.
_STATES, _WHYS, _KINDS = tuple(State), tuple(Why), tuple(Kind)


def take(conversation: Conversation) -> Snapshot:
    """Returns the conversation as plain values."""
    return [
        conversation.conversation_id,
        *conversation.services,
        conversation.to_broker_instance,
        conversation.begun,
        # NEVER_MS: its lifetime has ended both sides.
        NEVER_MS if conversation.is_lifetime_over else conversation.ends_ms,
        conversation.over_ms,
        conversation.spoken_ms,
        *[_take_endpoint(endpoint) for endpoint in conversation.endpoints],
        *[_take_direction(direction) for direction in conversation.directions],
        *([] if conversation.far is None else [_take_far(conversation.far)]),
    ]


def restore(snapshot: Snapshot) -> Conversation:
    """Returns the conversation of a snapshot of this FORMAT_VERSION."""
    conversation_id, service, to_service, instance, begun, ends_ms, over_ms, *parts = snapshot
    # Snapshots of the first routers have no instant of the last statement, and no far endpoint.
    spoken_ms = parts.pop(0) if len(parts) > _PARTS else NEVER_MS
    directions = [_restore_direction(part) for part in parts[2:_PARTS]]
    is_lifetime_over = ends_ms == NEVER_MS
    return Conversation(
        conversation_id,
        (service, to_service),
        instance,
        [_restore_endpoint(part) for part in parts[:2]],
        directions,
        begun,
        FOREVER_MS if is_lifetime_over else ends_ms,
        is_lifetime_over,
        over_ms,
        spoken_ms,
        _restore_far(parts[_PARTS], directions) if len(parts) > _PARTS else None,
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
    state, database, service_created, group_id, timer_ms, *later = taken
    # Before format 4 there is no broker instance.
    return Endpoint(_STATES[state], database, service_created, group_id, timer_ms, later[0] if later else None)


def _take_far(far: FarEndpoint) -> Snapshot:
    ahead = [
        [sequence, _KINDS.index(message.kind), message.offset, message.received_ms]
        for sequence, message in far.ahead.items()
    ]
    return [
        far.side,
        far.broker_instance,
        far.address,
        far.sending.next_to_send if isinstance(far.sending, Sending) else 0,
        far.sent_below,
        far.resend_ms,
        far.resend_after_ms,
        far.has_told_end,
        ahead,
        far.unacknowledged_since_ms,
        far.window,
        far.silent_ms,
        far.repeats_below,
        far.came_back_from,
        far.received_below,
    ]


def _restore_far(taken: Snapshot, directions: list[Direction]) -> FarEndpoint:
    side, broker_instance, address, next_sequence, sent_below, resend_ms, resend_after_ms, *rest = taken
    # The first versions had no instant of sending, the next versions no window. Before format 4, a closed conversation
    # was forgotten even if its far side might repeat messages, addresses of messages that came back were not noted, and
    # an Error of the router counted as received.
    later = [None, None, None, 0, [], directions[TARGET - side].next_sequence]
    has_told_end, ahead, unacknowledged_since_ms, window, silent_ms, repeats_below, returned, received_below = (
        rest + later[len(rest) - 2 :]
    )
    resend_ms = _or_none(resend_ms)
    sending: Idle | Unrouted | Sending = Idle()
    if directions[side].waiting:
        sending = Sending(next_sequence, resend_ms) if address else Unrouted(resend_ms)
    return FarEndpoint(
        side,
        broker_instance,
        address,
        [*returned],
        sending,
        sent_below,
        _or_none(unacknowledged_since_ms),
        resend_after_ms,
        window or None,
        _or_none(silent_ms),
        has_told_end,
        received_below,
        repeats_below,
        {sequence: Ahead(_KINDS[kind], offset, received_ms) for sequence, kind, offset, received_ms in ahead},
    )


def _or_none(instant_ms: int | None) -> int | None:
    """Returns an instant; None for FOREVER_MS and NEVER_MS, which older formats and early builds of format 4 stored."""
    return None if instant_ms is None else instant_or_none(instant_ms)


def _take_direction(direction: Direction) -> Snapshot | int:
    """Returns a direction as plain values: only its next number if no delivery has failed and no message is held."""
    waiting, held, returned = direction.waiting, direction.held, direction.returned
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
        *([None, None, "", None] if held is None else [held.since_ms, held.number, held.text, held.retry_ms]),
        *([0, None] if returned is None else [returned.below, returned.since_ms]),
        None if held is None else int(held.why),
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
    # Before format 4, earlier returns were not noted. The first versions of format 4 had no number of the reason.
    next_sequence, due_sequence, round_, dropped_below, since_ms, number, text, retry_ms, *later = fields
    missing: list[Any] = [0, None, None]
    below, returned_ms, why = later + missing[len(later) :]
    since_ms, returned_ms, retry_ms = _or_none(since_ms), _or_none(returned_ms), retry_ms or None
    held = None
    if since_ms is not None:
        held = Held(_why_of(text, retry_ms) if why is None else _WHYS[why], since_ms, number, text, retry_ms)
    numbers = zip(accumulate(sequences), accumulate(offsets), strict=True)
    items = [Item(sequence, Kind.MESSAGE, offset) for sequence, offset in numbers]
    # Before format 3 there are no bodies.
    for index, kind, error_code, error_text, *body in others:
        item = items[index]
        items[index] = Item(item.sequence, _KINDS[kind], item.offset, error_code, error_text, *body)
    returned = None if returned_ms is None else Returned(below, returned_ms)
    return Direction(next_sequence, due_sequence, deque(items), held, round_, dropped_below, returned)


def _why_of(text: str, retry_ms: int | None) -> Why:
    """Returns the reason that a sentence describes. Some snapshots have only the sentence."""
    if retry_ms is not None:
        return Why.FAILED
    if text.endswith(ON_THEIR_WAY):
        return Why.ON_THEIR_WAY
    known = {LET_GO: Why.LET_GO, RETURN_AWAITED: Why.RETURN_AWAITED, SENT_AGAIN: Why.SENT_AGAIN}
    return known.get(text, Why.UNDECIDED)


def _differences(values: list[int]) -> list[int]:
    return [value - before for before, value in zip([0, *values], values, strict=False)]
