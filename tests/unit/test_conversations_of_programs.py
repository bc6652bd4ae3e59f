"""Statements of programs: what their envelopes say, and that nothing of a transaction is left if it fails."""

import json
import math
import pickle
from typing import Any, cast

import pytest

from producers.conversations import Conversation, Statements, begin
from producers.received_message import ReceivedMessage
from streaming.core.conversations.decisions import END_DIALOG, ERROR
from streaming.errors import UserError
from streaming.kafka.transactions import TransactionalProducer
from streaming.wire.delivered import error_body
from streaming.wire.record_decoders import InvalidRecordError

Record = tuple[str, bytes | None, dict[str, Any], list[str]]


class Recorder:
    """Keeps what a transaction would send."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def produce(self, _topic: str, value: bytes | None, key: bytes, headers: list[tuple[str, bytes]]) -> None:
        fields = json.loads(dict(headers)["envelope"])
        self.records.append((key.decode(), value, fields, [name for name, _ in headers]))


def open_statements() -> Statements:
    statements = Statements(lambda: None)
    statements.open()
    return statements


def produced(statements: Statements) -> list[Record]:
    recorder = Recorder()
    statements.produce(cast("TransactionalProducer", recorder), "service-messages")
    return recorder.records


def begun(statements: Statements, **more: Any) -> Conversation:
    return begin(statements, "A", "Orders", "Stock", **more)


def test_the_first_statement_begins_the_conversation() -> None:
    statements = open_statements()
    conversation = begun(statements, lifetime_s=60, group_id="g", broker_instance="B")
    conversation.send(b"1", message_type="Order", headers=[("trace", b"t")])
    conversation.end()
    first, last = produced(statements)
    both = {
        "conversation_id": conversation.conversation_id,
        "is_initiator": True,
        "from_service": "Orders",
        "from_database": "A",
        "to_service": "Stock",
    }
    own = {"lifetime_s": 60, "conversation_group_id": "g", "to_broker_instance": "B", "message_type_name": "Order"}
    assert first == (
        conversation.conversation_id,
        b"1",
        {**both, "type": "MESSAGE", "begin": True, **own},
        ["trace", "envelope"],
    )
    assert last == (conversation.conversation_id, None, {**both, "type": "END"}, ["envelope"])


def test_statements_that_were_not_sent_are_forgotten_and_can_be_made_again() -> None:
    statements = open_statements()
    conversation = begun(statements)
    conversation.send(b"1")
    conversation.end()
    with pytest.raises(RuntimeError, match=f"has ended conversation {conversation.conversation_id}"):
        conversation.send(b"2")
    statements.close()
    statements.open()
    assert produced(statements) == []
    conversation.send(b"3")
    [(_, value, fields, _)] = produced(statements)
    assert (value, fields["begin"]) == (b"3", True)
    statements.sent()
    statements.close()
    statements.open()
    conversation.end()
    assert "begin" not in produced(statements)[0][2]


def test_an_error_and_a_timer() -> None:
    statements = open_statements()
    conversation = begun(statements)
    conversation.set_timer(1.5)
    conversation.end_with_error(7, "no")
    timer, error = (fields for _, _, fields, _ in produced(statements))
    assert (timer["type"], timer["timer_ms"]) == ("TIMER", 1_500)
    assert (error["type"], error["error_code"], error["error_text"]) == ("ERROR", 7, "no")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda each: each.set_timer(-1), "delay is -1 s; it must be 0 or more"),
        (lambda each: each.set_timer("3s"), "delay is of type str; it must be a number"),
        (lambda each: each.set_timer(math.nan), "delay is nan s"),
        (lambda each: each.set_timer(math.inf), "delay is inf s"),
        (lambda each: each.set_timer(1e10), "timer_ms"),
        (lambda each: each.end_with_error(0, ""), "must be positive"),
        (lambda each: each.end_with_error("1", "x"), "code of an error is of type str; it must be int"),
        (lambda each: each.end_with_error(1, 2), "error_text"),
        (lambda each: each.end_with_error(1, "x" * 3001), "error_text"),
        (lambda each: each.send(b"", message_type=""), "message_type_name"),
        (lambda each: each.send(b"", message_type="\ud800"), "surrogates not allowed"),
        (lambda each: each.begin("").send(b""), "to_service"),
        (lambda each: each.end_with_error(1, "\u6f22" * 3000), "the envelope has 9"),
        (lambda each: each.send(b"x" * 1_000_000), "statement has 1,000,[0-9]{3} bytes .* more than the 1,000,000 of"),
        (lambda each: each.send(b"", headers=[("a", b"x" * 1_000_000)]), "statement has 1,000,[0-9]{3} bytes"),
        (lambda each: each.send(b"", headers=[("a", b""), ("envelope", b"{}")]), "header 'envelope' belongs to each"),
        (lambda each: each.send(b"", headers=[("conversation_id", b"c")]), "header 'conversation_id' belongs to each"),
        (lambda each: each.send(b"", message_type=END_DIALOG), "EndDialog is only for what the router says"),
        (lambda each: each.send(b"", message_type=ERROR), "Error is only for what the router says"),
    ],
)
def test_a_statement_that_the_router_would_refuse_is_not_made(make: Any, reason: str) -> None:
    statements = open_statements()
    with pytest.raises(UserError, match=reason):
        make(begun(statements))
    assert produced(statements) == []


@pytest.mark.parametrize("body", [bytearray(b"x"), memoryview(b"x"), "text", "\ud800", 5, [b"x"]])
def test_a_body_that_is_no_bytes_is_refused_at_once(body: Any) -> None:
    statements = open_statements()
    with pytest.raises(UserError, match=f"is of type {type(body).__name__}; it must be bytes"):
        begun(statements).send(body)
    assert produced(statements) == []


@pytest.mark.parametrize(
    "header",
    [("\ud800", b"v"), ("name", None), ("name", "text"), (b"name", b"v"), ("name", b"v", 1), "no", ["a", b"b"]],
)
def test_a_header_that_kafka_does_not_take_is_refused_at_once(header: Any) -> None:
    statements = open_statements()
    with pytest.raises(UserError, match="is not valid"):
        begun(statements).send(b"body", headers=[("good", b"v"), header])
    assert produced(statements) == []


def test_without_a_transaction_a_statement_is_sent_at_once_or_not_at_all() -> None:
    sent: list[Record] = []

    def send_now() -> None:
        if len(sent) == 1:
            raise ConnectionError
        sent.extend(produced(statements))
        statements.sent()

    statements = Statements(lambda: None, send_now)
    conversation = begun(statements)
    conversation.send(b"1")
    with pytest.raises(ConnectionError):
        conversation.end()
    assert [fields["type"] for _, _, fields, _ in sent] == ["MESSAGE"]
    sent.append(sent[0])
    conversation.end()
    assert sent[-1][2]["type"] == "END"


def test_the_topics_are_checked_once_before_the_first_statement() -> None:
    checks: list[bool] = []

    def check() -> None:
        checks.append(True)
        if len(checks) == 1:
            raise UserError("no topic")

    statements = Statements(check)
    statements.open()
    conversation = begun(statements)
    with pytest.raises(UserError, match="no topic"):
        conversation.send(b"1")
    conversation.send(b"2")
    conversation.send(b"3")
    assert len(checks) == 2
    assert [(value, fields.get("begin")) for _, value, fields, _ in produced(statements)] == [
        (b"2", True),
        (b"3", None),
    ]


HEADERS = {
    "conversation_id": b"c",
    "is_initiator": b"true",
    "service": b"Stock",
    "from_service": b"Orders",
    "database": b"B",
    "message_type_name": b"DEFAULT",
    "message_sequence_number": b"4",
}


def received(statements: Statements, value: bytes = b"", **headers: bytes | None) -> ReceivedMessage:
    found = {**HEADERS, **headers}
    return ReceivedMessage(value, b"g", tuple(found.items()), 0, 7, 0, statements)


def test_an_answer_comes_from_the_other_side() -> None:
    statements = open_statements()
    message = received(statements)
    assert (message.kind, message.sequence_number, message.conversation_id) == ("MESSAGE", 4, "c")
    conversation = message.conversation
    conversation.send(b"yes")
    conversation.end()
    with pytest.raises(RuntimeError, match="has ended"):
        conversation.send(b"too late")
    (key, _, answer, _), (_, _, end, _) = produced(statements)
    assert (key, answer["is_initiator"], answer["from_service"], answer["from_database"], answer["to_service"]) == (
        "c",
        False,
        "Stock",
        "B",
        "Orders",
    )
    assert end["type"] == "END"
    assert {"begin", "conversation_group_id"}.isdisjoint(answer)


def test_a_second_message_of_a_conversation_that_was_ended_does_not_fail_its_reader() -> None:
    statements = open_statements()
    for _ in range(2):
        message = received(statements)
        message.conversation.send(b"yes")
        message.conversation.end()
    # The router refuses the last two, as if the second message had come in a batch of its own.
    assert [fields["type"] for _, _, fields, _ in produced(statements)] == ["MESSAGE", "END"] * 2


def test_a_message_can_be_sent_to_another_process_which_cannot_answer_it() -> None:
    message = received(open_statements(), b"work")
    copy = pickle.loads(pickle.dumps(message))  # noqa: S301 - made here
    assert copy == message
    with pytest.raises(RuntimeError, match="only in its receive block"):
        copy.conversation.end()


def test_a_related_conversation_has_the_same_group_and_its_own_beginning() -> None:
    statements = open_statements()
    received(statements).conversation.begin("Carrier").send(b"fetch it")
    [(key, _, fields, _)] = produced(statements)
    assert key == fields["conversation_id"] != "c"
    assert (fields["from_service"], fields["from_database"], fields["to_service"]) == ("Stock", "B", "Carrier")
    assert (fields["begin"], fields["is_initiator"], fields["conversation_group_id"]) == (True, True, "g")


def test_an_error_has_code_and_text() -> None:
    error = ERROR.encode()
    message = received(open_statements(), error_body(-8470, "gone & <forgotten>"), message_type_name=error)
    assert (message.kind, message.error) == ("ERROR", (-8470, "gone & <forgotten>"))
    for body in (b"", b"text", b"<a/>", error_body(1, "")[:-1]):
        with pytest.raises(InvalidRecordError):
            _ = received(open_statements(), body, message_type_name=error).error


def test_a_message_that_is_no_services_has_no_conversation() -> None:
    message = ReceivedMessage(b"", None, (("service", b"Stock"),), 3, 7, 0, open_statements())
    assert (message.kind, message.conversation_id, message.message_type, message.sequence_number) == (
        "MESSAGE",
        None,
        None,
        None,
    )
    with pytest.raises(
        UserError, match=r"offset 7 of partition 3 .* no header conversation_id, is_initiator, database"
    ):
        _ = message.conversation


@pytest.mark.parametrize("type_name", [None, "//shop/order", END_DIALOG])
def test_what_is_no_error_has_none_whatever_its_body(type_name: str | None) -> None:
    headers = {} if type_name is None else {"message_type_name": type_name.encode()}
    for body in (b"", b"text", error_body(1, "text")):
        assert received(open_statements(), body, **headers).error is None
