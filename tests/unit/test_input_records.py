"""Reports with fields that their result ignores, such as the zero values that Go writes into unset fields."""

import json
from random import Random
from typing import Any

import pytest

from streaming.core.activation import events
from streaming.core.activation.events import ReceiveResult
from streaming.wire.input_records import arrivals_decoder, commands_decoder, decode, receives_decoder
from tests.support.histories import random_event
from tests.support.records_sent import record_of
from tests.support.seeds import fresh_seed

ZERO = {"messages": 0, "where": False, "transaction_id": "", "timeout_ms": 0}
OTHERS = {"messages": -1, "where": False, "transaction_id": "x" * 999, "timeout_ms": -(10**30)}


def event(**fields: Any) -> Any:
    value = json.dumps({"queue": "q", "session_id": "s", **fields}).encode()
    return decode(receives_decoder, b"q", value, len(value)).event()


@pytest.mark.parametrize("ignored", [ZERO, OTHERS])
@pytest.mark.parametrize("kind", ["RECEIVE", "GET_CONVERSATION_GROUP"])
def test_an_empty_result_ignores_all_that_belongs_to_others(ignored: dict[str, Any], kind: str) -> None:
    assert event(type=kind, result="EMPTY", **ignored) == events.Receive("s", ReceiveResult.EMPTY)


@pytest.mark.parametrize("kind", ["RECEIVE", "GET_CONVERSATION_GROUP"])
def test_a_wait_ignores_the_number_and_the_transaction(kind: str) -> None:
    found = event(type=kind, result="WAITING", **OTHERS | {"timeout_ms": 7})
    assert found == events.Receive("s", ReceiveResult.WAITING, timeout_ms=7)


def test_messages_ignore_the_end_of_a_wait() -> None:
    found = event(type="RECEIVE", result="MESSAGES", messages=2, transaction_id="t", timeout_ms=-1)
    assert found == events.Receive("s", ReceiveResult.MESSAGES, 2, transaction_id="t")


def test_a_task_that_did_not_start_has_no_exit_code() -> None:
    found = event(type="TASK_FAILED_TO_START", task_id="k", exit_code=2**40, reason="no memory")
    assert found == events.TaskFailedToStart("k", "no memory")
    assert event(type="TASK_EXITED", task_id="k", exit_code=3, reason="") == events.TaskExited("k", 3, "")
    stopped = event(type="TASK_EXITED", task_id="k", exit_code=-15, reason="bye", interrupted=True)
    assert stopped == events.TaskExited("k", -15, "bye", interrupted=True)


def test_each_event_has_a_record_that_causes_it() -> None:
    seed = fresh_seed("EVENTS_SEED")
    random = Random(seed)  # noqa: S311
    decoders: dict[str, Any] = {
        "queue-arrivals": arrivals_decoder,
        "queue-receives": receives_decoder,
        "queue-commands": commands_decoder,
    }
    for _ in range(2_000):
        sent = random_event(random)
        topic, value = record_of(sent, "q")
        encoded = json.dumps(value).encode()
        found: Any = decode(decoders[topic], b"q", encoded, len(encoded)).event()
        assert without_what_is_ignored(found) == without_what_is_ignored(sent), f"EVENTS_SEED={seed}"


def without_what_is_ignored(event: events.Event) -> Any:
    """Returns an event in a form that can be compared, without the number of a session's messages if there are none."""
    if isinstance(event, events.Receive):
        return event.session_id, event.result, event.unread
    return event
