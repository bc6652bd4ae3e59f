"""The cost of asking again for the principals of many mirrored routes grows with their number only."""

from collections.abc import Collection

import pytest

from streaming.core.conversations.context import Context
from streaming.core.conversations.conversation import Conversation
from streaming.core.conversations.mirrors import ASK_AGAIN_MS, Mirrors, Pair
from streaming.core.conversations.settings import ConversationSettings
from streaming.core.routing.databases import Changes
from streaming.core.routing.definitions import Definitions
from streaming.spark.routing.take_news import take_news
from streaming.wire.service_decisions import ConnectedReport, News, RoleReport
from tests.support.calls import calls_of
from tests.support.routing_scene import HOST_1, HOST_2, INSTANCE, route, scene

FEW, MANY = 250, 4_000
# A cost that grows with the square would be 256 times as high.
MOST_TIMES = 3 * MANY / FEW


class Store:
    """Conversations that wait for all services."""

    def mark(self, changes: Changes) -> None:
        """Does nothing."""

    def held_of(self, services: Collection[str]) -> set[str]:
        """Returns all services."""
        return {*services}

    def find(self, conversation_id: str) -> Conversation | None:
        """Is not called."""
        raise AssertionError(conversation_id)

    def add(self, conversation: Conversation) -> None:
        """Is not called."""
        raise AssertionError(conversation)


def mirrored(number: int) -> Definitions:
    """Returns so many mirrored routes, each to a database of its own."""
    routes = (route(f"r{n}", f"S{n}", HOST_1, instance=f"i{n}", mirror=HOST_2) for n in range(number))
    return scene(*routes)


def pairs(number: int) -> list[Pair]:
    return [(f"i{n}", HOST_1, HOST_2) for n in range(number)]


def cycle_calls(definitions: Definitions, number: int, news: list[News]) -> int:
    """Returns the calls with which a shard takes news and asks for all principals again."""
    mirrors = Mirrors()
    for pair in pairs(number):
        assert mirrors.principal(pair) is None
    context = Context(definitions, INSTANCE, ConversationSettings(), ASK_AGAIN_MS, 0, 0, 0, 0, mirrors=mirrors)
    calls = calls_of(lambda: take_news(context, news, {}, Store(), Changes()))
    assert len(context.decisions) == number
    return calls


@pytest.mark.parametrize("lost", [False, True], ids=["without an answer", "that cannot be reached"])
def test_the_cost_of_principals_that_are_asked_for_again_grows_with_their_number_only(lost: bool) -> None:
    calls = {}
    for number in (FEW, MANY):
        definitions = mirrored(number)
        news: list[News] = [RoleReport(instance, address) for instance, *both in pairs(number) for address in both]
        if lost:
            news = [ConnectedReport(address, is_connected=False) for address in (HOST_1, HOST_2)]
        calls[number] = cycle_calls(definitions, number, news)
    assert calls[MANY] < MOST_TIMES * calls[FEW]


def test_a_pair_that_is_forgotten_and_used_again_is_known_by_both_of_its_addresses() -> None:
    mirrors = Mirrors()
    [pair, other] = pairs(2)
    context = Context(Definitions(), INSTANCE, ConversationSettings(), ASK_AGAIN_MS, 0, 0, 0, 0, mirrors=mirrors)
    for each in (pair, other):
        context.ask(each)
    mirrors.keep_only({other})
    assert mirrors.take_answer(pair[0], HOST_1, ("PRINCIPAL", 1)) == []
    assert mirrors.principal(pair) is None
    assert mirrors.take_answer(pair[0], HOST_2, ("PRINCIPAL", 1)) == [pair]
    assert mirrors.lose(HOST_2) == [pair]
