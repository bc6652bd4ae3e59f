"""Asks again for each message that is held whether the reason that the router shows is true."""

from collections.abc import Sequence

from streaming.core.conversations.conversation import TARGET, Conversation
from streaming.core.conversations.decisions import Deliver
from streaming.core.conversations.delivering import RETURN_AWAITED
from streaming.core.routing import conversation as routing
from streaming.core.routing.conversation import Outcome, Question
from streaming.core.routing.resolving import ROUTE_ASKED_FOR, resolve
from streaming.core.times import FOREVER_MS
from streaming.wire.service_decisions import RefusedReport, ServiceReport, decode_decisions
from tests.support.conversation_router import Partition
from tests.support.plain_shard import PlainShard

NO_TOPIC = "the topic does not exist"
TOO_LARGE = "the message is too large"


def untrue(
    partition: Partition, done: int, unread: Sequence[ServiceReport], conversation: Conversation, to: int
) -> str | None:
    """Returns what is wrong with the reason for which a direction's messages are held; None if it is true.

    Args:
        partition: The partition.
        done: The offset of the first record of decisions that was not carried out.
        unread: The reports that the router has not read.
        conversation: The conversation.
        to: The receiving side.
    """
    shard, direction = partition.shard, conversation.directions[to]
    now_ms, wake_ms = shard.clock.now_ms, shard.wakes[conversation.conversation_id]
    is_sent = conversation.is_far(to) and direction.held_since_ms > now_ms
    if not is_sent and (direction.held_since_ms > now_ms or not direction.reason):
        return "held without a reason"
    if wake_ms <= now_ms:
        return None  # is to be looked at
    if is_sent:
        return _unsent(shard, conversation, to)
    if direction.retry_ms > now_ms:
        is_known = direction.reason in {NO_TOPIC, TOO_LARGE} and wake_ms <= direction.retry_ms
        return None if is_known else f"rests because of {direction.reason!r} until {wake_ms}"
    if direction.reason == RETURN_AWAITED:
        return None if _is_awaited(partition, done, unread, conversation, to) else "awaits what is not to be returned"
    return _untrue_by_definitions(shard, conversation, to)


def _unsent(shard: PlainShard, conversation: Conversation, to: int) -> str | None:
    """Returns what is wrong with messages that are on their way to another instance."""
    link, sender = conversation.link, conversation.endpoints[TARGET - to]
    assert link is not None
    assert sender is not None
    if conversation.directions[to].waiting[-1].sequence >= link.sent_below:
        return "neither sent nor held"
    asked = routing.Conversation(
        conversation.conversation_id,
        conversation.services[to],
        conversation.to_broker_instance,
        to == TARGET,
        sender.database,
    )
    decision = _decided(shard, conversation, to, asked)
    return None if decision.address == link.address else f"sent to {link.address}, not to {decision.address}"


def _untrue_by_definitions(shard: PlainShard, conversation: Conversation, to: int) -> str | None:
    definitions, direction = shard.definitions, conversation.directions[to]
    receiver, sender = conversation.endpoints[to], conversation.endpoints[TARGET - to]
    service = None if receiver is None else definitions.service(receiver.database, conversation.services[to])
    is_here = service is not None and definitions.is_here(service.database)
    first = direction.waiting[0]
    if (first.offset < 0 and first.body is None) or sender is None:
        return "its service is here" if is_here else None
    if to == TARGET:
        instance = conversation.to_broker_instance
    else:
        database = definitions.databases.get(receiver.database) if receiver is not None else None
        instance = None if database is None else database.broker_instance
    asked = routing.Conversation(
        conversation.conversation_id, conversation.services[to], instance, to == TARGET, sender.database
    )
    decision = _decided(shard, conversation, to, asked)
    if decision.outcome is Outcome.LOCAL:
        return "it can go" if receiver is None or is_here else None
    if decision.outcome is Outcome.REMOTE:
        return None if str(decision.address) in direction.reason else f"its reason is {decision.address}"
    return None if decision.number == direction.number else f"{direction.number} should be {decision.number}"


def _decided(shard: PlainShard, conversation: Conversation, to: int, asked: routing.Conversation) -> routing.Decision:
    states = dict(shard.questions.states(asked.to_service, was_held=True))
    direction = conversation.directions[to]
    if direction.held_since_ms < FOREVER_MS and direction.number != ROUTE_ASKED_FOR:
        # It was matched after an answer, and is matched again after the next one.
        states = dict.fromkeys(states, Question.ANSWERED)
    return resolve(shard.definitions, shard.instance, asked, questions=states)


def _is_awaited(
    partition: Partition, done: int, unread: Sequence[ServiceReport], conversation: Conversation, to: int
) -> bool:
    """Returns whether the transport will still return, or has returned, the next delivery of a direction."""
    name, begun = conversation.conversation_id, conversation.begun
    wanted = name, begun, to == TARGET, conversation.directions[to].due_sequence
    undone = [*partition.log[done:], *partition.pending]
    for value in undone:
        for each in decode_decisions(value).batch(0).decisions:
            if isinstance(each, Deliver):
                found = each.conversation_id, each.begun, each.is_initiator, each.sequence
                if found == wanted:
                    return True
    return any(
        (report.conversation_id, report.begun, report.is_initiator, each.sequence) == wanted
        for report in unread
        if isinstance(report, RefusedReport)
        for each in report.refused
    )
