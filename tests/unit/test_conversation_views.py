"""The rows of service-conversations follow what a program sets and when it speaks."""

import json
from typing import Any

from streaming.core.conversations.conversation import SPOKEN_STEP_MS
from streaming.core.times import iso_time
from streaming.spark.shard_worker import TakenShard
from tests.unit.core.test_conversation_restoring import SETTINGS, message, run, started


def initiator(taken: TakenShard) -> dict[str, Any]:
    """Returns the initiator's row of conversation `a`."""
    values = [
        value for topic, key, value, *_ in taken.rows if (topic, key) == ("service-conversations", b"a/initiator")
    ]
    assert len(values) == 1
    found: dict[str, Any] = json.loads(values[0] or b"")
    return found


def test_a_timer_is_shown_until_it_is_delivered() -> None:
    taken = run(started(), [message(2, "a", type="TIMER", timer_ms=0)], SETTINGS)
    assert initiator(taken)["dialog_timer"] is not None
    assert initiator(run(taken.state, [message(3, "b")], SETTINGS))["dialog_timer"] is None


def test_another_conversation_group_is_shown() -> None:
    taken = run(started(), [message(2, "a", conversation_group_id="g")], SETTINGS)
    assert initiator(taken)["conversation_group_id"] == "g"
    again = run(taken.state, [message(3, "a", conversation_group_id="g")], SETTINGS)
    assert [topic for topic, *_ in again.rows] == ["service-decisions"]


def test_the_last_statement_is_shown_and_not_for_each_message() -> None:
    soon, late = SPOKEN_STEP_MS, SPOKEN_STEP_MS + 1_000
    taken = run(started(), [message(2, "a")], SETTINGS, at_ms=soon)
    assert [topic for topic, *_ in taken.rows] == ["service-decisions"]
    taken = run(taken.state, [message(3, "a")], SETTINGS, at_ms=late)
    shown = initiator(taken)
    assert (shown["last_statement"], shown["send_sequence"]) == (iso_time(late), 3)


def test_what_no_program_has_said_is_not_a_statement() -> None:
    late = 10 * SPOKEN_STEP_MS
    taken = run(started(), [message(2, "a", service="refused", to_service="//other")], SETTINGS, at_ms=late)
    assert not [row for row in taken.rows if row[0] == "service-conversations"]
    timer = run(started(), [message(2, "a", type="TIMER", timer_ms=0)], SETTINGS).state
    assert initiator(run(timer, [], SETTINGS, at_ms=late))["last_statement"] == iso_time(1_000)
