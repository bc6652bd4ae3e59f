"""Asks again for each message that is held whether the reason that the router shows is true."""

from collections.abc import Callable, Iterable

from streaming.core.conversations.conversation import TARGET, Conversation, Why
from streaming.core.conversations.decisions import Decision, Deliver
from streaming.core.conversations.delivery import RETURN_AWAITED
from streaming.core.conversations.mirrors import Mirrors
from streaming.core.conversations.transmission import SENT_AGAIN
from streaming.core.routing import conversation as routing
from streaming.core.routing.conversation import Outcome, Question
from streaming.core.routing.resolution import ROUTE_ASKED_FOR, resolve
from tests.support.held import number_of, text_of
from tests.support.plain_shard import PlainShard

NO_TOPIC = "the topic does not exist"
TOO_LARGE = "the message is too large"


# A delivery: conversation, the record that began it, whether the initiator has sent it, and its number.
Place = tuple[str, int | None, bool, int | None]


def check_held(shard: PlainShard, to_be_returned: Callable[[], set[Place]]) -> None:
    """Checks that every message that a shard holds has a reason that is true; for the arguments see `untrue`."""
    held = 0
    for name in shard.conversations:
        conversation = shard.conversation(name)
        held += conversation.waiting_count()
        for to in (0, 1):
            if conversation.directions[to].waiting:
                problem = untrue(shard, to_be_returned, conversation, to)
                assert problem is None, f"{name} to {to}: {problem}"
    assert held == shard.held, "the shard counts held messages wrongly"


def untrue(
    shard: PlainShard, to_be_returned: Callable[[], set[Place]], conversation: Conversation, to: int
) -> str | None:
    """Returns what is wrong with the reason for which a direction's messages are held; None if it is true.

    Args:
        shard: The shard.
        to_be_returned: Returns the deliveries that the transport may return, or has returned to the router.
        conversation: The conversation.
        to: The receiving side.
    """
    direction = conversation.directions[to]
    now_ms, wake_ms = shard.clock.now_ms, shard.wakes[conversation.conversation_id]
    is_far, held = conversation.far_at(to) is not None, direction.held
    is_sent = is_far and held is None
    if not is_sent and (held is None or not held.text):
        return "held without a reason"
    if wake_ms <= now_ms:
        return None  # is to be looked at
    if is_sent or (is_far and held is not None and held.why in {Why.ON_THEIR_WAY, Why.SENT_AGAIN}):
        problem = _unsent(conversation, to) if is_sent else _below_limit(shard, conversation, to)
        return problem or _elsewhere(shard, conversation, to)
    if direction.retry_ms is not None and direction.retry_ms > now_ms:
        is_known = text_of(direction) in {NO_TOPIC, TOO_LARGE} and wake_ms <= direction.retry_ms
        return None if is_known else f"rests because of {text_of(direction)!r} until {wake_ms}"
    if text_of(direction) == RETURN_AWAITED:
        wanted = conversation.conversation_id, conversation.begun, to == TARGET, direction.due_sequence
        return None if wanted in to_be_returned() else "awaits what is not to be returned"
    return _untrue_by_definitions(shard, conversation, to)


def _unsent(conversation: Conversation, to: int) -> str | None:
    """Returns what is wrong with messages that are on their way to another instance."""
    assert conversation.far is not None
    is_one_left = conversation.directions[to].waiting[-1].sequence >= conversation.far.sent_below
    return "neither sent nor held" if is_one_left else None


def _below_limit(shard: PlainShard, conversation: Conversation, to: int) -> str | None:
    """Returns what is wrong if the reason is the limit of messages on their way."""
    far, direction = conversation.far, conversation.directions[to]
    assert far is not None
    if (text_of(direction) == SENT_AGAIN) != (far.window is not None):
        return f"{text_of(direction)!r} with a window of {far.window}"
    window = far.window or shard.settings.max_unacknowledged
    return None if len(direction.waiting) > window else f"only {len(direction.waiting)} wait, the limit is {window}"


def _elsewhere(shard: PlainShard, conversation: Conversation, to: int) -> str | None:
    """Returns what is wrong with the address to which messages were sent."""
    far, sender = conversation.far, conversation.endpoints[TARGET - to]
    assert far is not None
    assert sender is not None
    asked = routing.RoutedMessage(
        conversation.conversation_id,
        conversation.services[to],
        conversation.to_broker_instance,
        to == TARGET,
        sender.database,
    )
    if sender.database not in shard.definitions.databases:
        return None  # the last words of a database that was dropped go where its messages went
    decision = _decided(shard, conversation, to, asked)
    return None if decision.address == far.address else f"sent to {far.address}, not to {decision.address}"


def _untrue_by_definitions(shard: PlainShard, conversation: Conversation, to: int) -> str | None:
    definitions, direction = shard.definitions, conversation.directions[to]
    receiver, sender = conversation.endpoints[to], conversation.endpoints[TARGET - to]
    service = None if receiver is None else definitions.service(receiver.database, conversation.services[to])
    is_here = service is not None and definitions.is_here(service.database)
    first = direction.waiting[0]
    if (first.offset < 0 and first.body is None) or sender is None:
        return "its service is here" if is_here else None
    if conversation.far is not None and conversation.far.side == to and conversation.far.broker_instance is not None:
        instance = conversation.far.broker_instance or None
    elif to == TARGET:
        instance = conversation.to_broker_instance
    else:
        database = definitions.databases.get(receiver.database) if receiver is not None else None
        instance = None if database is None else database.broker_instance
    asked = routing.RoutedMessage(
        conversation.conversation_id, conversation.services[to], instance, to == TARGET, sender.database
    )
    decision = _decided(shard, conversation, to, asked)
    if decision.outcome is Outcome.LOCAL:
        return "it can go" if receiver is None or is_here else None
    if decision.outcome is Outcome.REMOTE:
        return None if str(decision.address) in text_of(direction) else f"its reason is {decision.address}"
    return None if decision.number == number_of(direction) else f"{number_of(direction)} should be {decision.number}"


def _decided(shard: PlainShard, conversation: Conversation, to: int, asked: routing.RoutedMessage) -> routing.Decision:
    states = dict(shard.questions.states(asked.to_service, was_held=True))
    if number_of(conversation.directions[to]) != ROUTE_ASKED_FOR:
        # The message was matched after an answer. It is matched again only after the next answer, or when it is sent
        # again.
        states = dict.fromkeys(states, Question.ANSWERED)
    far = conversation.far_at(to)
    principal_of = Mirrors(shard.mirrors.snapshot()).principal
    returned = () if far is None else far.came_back_from
    return resolve(
        shard.definitions, shard.instance, asked, questions=states, principal_of=principal_of, returned=returned
    )


def places_of(decisions: Iterable[Decision]) -> set[Place]:
    """Returns the deliveries among decisions."""
    return {
        (each.conversation_id, each.begun, each.is_initiator, each.sequence)
        for each in decisions
        if isinstance(each, Deliver)
    }
