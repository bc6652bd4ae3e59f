"""The conversations of a shard as columns: which of them are found."""

from collections import deque

from streaming.core.conversations.conversation import Conversation, Direction, Endpoint, Item, Link
from streaming.core.conversations.decisions import Kind
from streaming.core.conversations.endpoint_states import State
from streaming.core.conversations.settings import ConversationSettings
from streaming.spark.routing.conversation_store import ConversationStore

ADDRESS = "tcp://far:1"


def conversation(name: str, waiting: int) -> Conversation:
    items = deque(Item(number, Kind.MESSAGE, number) for number in range(waiting))
    link = Link(1, address=ADDRESS)
    endpoints = [Endpoint(State.CO, "A", 0, name), None]
    return Conversation(
        name, ("S", "T"), None, endpoints, [Direction(), Direction(waiting, 0, waiting=items)], link=link
    )


def test_only_conversations_with_messages_to_an_address_are_taken_up_when_it_is_reached_again() -> None:
    store = ConversationStore()
    store.add(conversation("waits", 2))
    store.add(conversation("idle", 0))
    packed, _, _ = store.pack(ConversationSettings())
    again = ConversationStore(packed)
    assert [each.conversation_id for each in again.take_up_sent_to([ADDRESS])] == ["waits"]
    assert [*again.taken] == ["waits"], "an idle conversation costs as much as one that waits"
    assert not ConversationStore(packed).take_up_sent_to(["tcp://another:1"])
