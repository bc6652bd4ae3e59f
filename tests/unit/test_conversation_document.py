"""docs/conversations.md has every number, limit and reason of the code."""

import re

from streaming.core.conversations import decisions, delivery, held_messages
from streaming.core.conversations.endpoint_states import State
from streaming.core.conversations.settings import ConversationSettings
from streaming.core.routing.explanation import NUMBERS
from streaming.wire.service_views import no_acknowledgement
from tests.support.command_lines import ROOT

DOCUMENT = (ROOT / "docs" / "conversations.md").read_text()


def test_every_number_is_in_the_document() -> None:
    of_decisions = [value for name, value in vars(decisions).items() if name.isupper() and isinstance(value, int)]
    for number in (*of_decisions, *NUMBERS):
        assert re.search(rf"\b{number}\b", DOCUMENT), number


def test_every_limit_is_in_the_document() -> None:
    settings = ConversationSettings()
    for limit in (
        settings.max_held_per_direction,
        settings.max_held,
        settings.max_conversations,
        settings.max_let_go,
        settings.max_looked_at,
    ):
        assert re.search(rf"\b{limit:,}\b", DOCUMENT), limit
    for text in (
        f"remembers the conversation for {settings.tombstone_ms // 60_000} minutes",
        f"tries all such deliveries again every {settings.delivery_retry_ms // 1_000} s",
        f"tries again every {settings.timer_retry_ms // 1_000} s",
    ):
        assert text in DOCUMENT, text


def test_every_state_and_reason_is_in_the_document() -> None:
    for state in State:
        assert state is State.ABSENT or f"| {state.name} |" in DOCUMENT
    assert held_messages.LET_GO in DOCUMENT
    assert no_acknowledgement("tcp://...", is_sent_again=True) in DOCUMENT
    assert delivery.RETURN_AWAITED.removesuffix(" by the transport") in DOCUMENT
