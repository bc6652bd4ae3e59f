"""Records that break the contract: each kind, in each topic, becomes a dead letter and changes nothing."""

import json
from dataclasses import replace
from typing import Any

import pytest

from streaming.core.times import FOREVER_MS
from streaming.spark.activation.sources import Source
from streaming.wire.input_records import MAX_RECORD_BYTES
from tests.support.fake_spark import FakeShard, Record, activations, arrival, command, of_topic, receive, record

KIB = 1024

ARRIVAL: dict[str, Any] = {"type": "MESSAGE_ARRIVED", "queue": "Q"}
RECEIVE: dict[str, Any] = {"type": "RECEIVE", "queue": "Q", "session_id": "s", "result": "EMPTY"}
GROUP: dict[str, Any] = RECEIVE | {"type": "GET_CONVERSATION_GROUP"}
COMMIT: dict[str, Any] = {"type": "COMMIT", "queue": "Q", "session_id": "s", "transaction_id": "t"}
TASK: dict[str, Any] = {"type": "TASK_EXITED", "queue": "Q", "task_id": "k"}
ALTER: dict[str, Any] = {"type": "ALTER_QUEUE", "queue": "Q"}
NOTIFICATION: dict[str, Any] = {"type": "CREATE_EVENT_NOTIFICATION", "queue": "Q", "notification": "n"}

TOPICS = {Source.ARRIVALS: ARRIVAL, Source.RECEIVES: RECEIVE, Source.COMMANDS: NOTIFICATION}
TOPIC_NAMES = {
    Source.ARRIVALS: "queue-arrivals",
    Source.RECEIVES: "queue-receives",
    Source.COMMANDS: "queue-commands",
}


def without(value: dict[str, Any], field: str) -> dict[str, Any]:
    return {name: one for name, one in value.items() if name != field}


def raw(source: Source, value: bytes | None, key: bytes | None = b"Q") -> Record:
    return Record(source, value, key)


def padded(source: Source, total_bytes: int) -> Record:
    """Returns a valid record whose key and value have this many bytes together."""
    value = json.dumps(TOPICS[source] | {"ignored": ""}).encode()
    return raw(source, value[:-2] + b"x" * (total_bytes - len(value) - 1) + value[-2:])


def broken_in_every_topic(source: Source) -> dict[str, tuple[Record, str]]:
    """Returns records that no topic accepts, each with a part of the reason."""
    value = TOPICS[source]
    good = json.dumps(value).encode()
    return {
        "no key": (raw(source, good, None), "no key"),
        "another key": (raw(source, good, b"q"), "key differs"),
        "an empty key": (raw(source, good, b""), "key differs"),
        "a key that is not UTF-8": (raw(source, good, b"\xff"), "key differs"),
        "no value": (raw(source, None), "no value"),
        "an empty value": (raw(source, b""), "invalid JSON"),
        "not JSON": (raw(source, b"hello"), "invalid JSON"),
        "half of the value": (raw(source, good[:-1]), "invalid JSON"),
        "the value twice": (raw(source, good + good), "invalid JSON"),
        "NaN": (raw(source, good[:-1] + b', "x": NaN}'), "invalid JSON"),
        "half a surrogate pair": (raw(source, good[:-1] + rb', "x": "\ud800 "}'), "invalid JSON"),
        "nested too deeply": (raw(source, good[:-1] + b', "x": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"), "nested"),
        "not an object": (raw(source, b"[" + good + b"]"), "Expected `object`"),
        "null": (raw(source, b"null"), "Expected `object`"),
        "not UTF-8": (raw(source, b"\xff" + good), "invalid UTF-8"),
        "not UTF-8 in an unknown field": (raw(source, good[:-1] + b', "x": "\xff"}'), "invalid UTF-8"),
        "not UTF-8 in the queue": (raw(source, good.replace(b'"Q"', b'"\xc3"'), b"\xc3"), "invalid UTF-8"),
        "an encoded surrogate": (raw(source, good[:-1] + b', "x": "\xed\xa0\x80"}'), "invalid UTF-8"),
        "no queue": (record(source, without(value, "queue"), key=b"Q"), "missing required field `queue`"),
        "queue is null": (record(source, value | {"queue": None}, key=b"Q"), "$.queue"),
        "queue is a number": (record(source, value | {"queue": 1}, key=b"1"), "$.queue"),
        "unknown type": (record(source, value | {"type": "RECEIVED"}), "$.type"),
        "type is null": (record(source, value | {"type": None}), "$.type"),
        "type is a number": (record(source, value | {"type": 1}), "$.type"),
        "over 64 KiB": (padded(source, MAX_RECORD_BYTES + 1), "65537 bytes"),
        "cut before it was decoded": (replace(raw(source, good), value_bytes=10**6), "1000001 bytes"),
    }


BAD_NAMES = {
    "empty": "",
    "over 128 characters": "x" * 129,
    "a part over 128 characters": "a." + "x" * 129,
    "four parts": "a.b.c.d",
    "an empty part": "a..c",
    "an empty first part": ".b",
    "an empty last part": "a.",
    "NUL": "a\0",
    "a line feed": "a\n",
    "DEL": "a\x7f",
    "a control character beyond ASCII": "a\x85",
}

# kind -> (value, part of the reason)
BROKEN: dict[Source, dict[str, tuple[dict[str, Any], str]]] = {
    Source.ARRIVALS: {
        "count 0": (ARRIVAL | {"count": 0}, "$.count"),
        "count negative": (ARRIVAL | {"count": -1}, "$.count"),
        "count over 10^9": (ARRIVAL | {"count": 10**9 + 1}, "$.count"),
        "count over 64 bits": (ARRIVAL | {"count": 10**30}, "$.count"),
        "count true": (ARRIVAL | {"count": True}, "$.count"),
        "count 1.0": (ARRIVAL | {"count": 1.0}, "$.count"),
        "count text": (ARRIVAL | {"count": "1"}, "$.count"),
        "count null": (ARRIVAL | {"count": None}, "$.count"),
        "count list": (ARRIVAL | {"count": [1]}, "$.count"),
        "type of another topic": (RECEIVE, "$.type"),
    },
    Source.RECEIVES: {
        "no type": (without(RECEIVE, "type"), "missing required field `type`"),
        "no session": (without(RECEIVE, "session_id"), "missing required field `session_id`"),
        "no result": (without(RECEIVE, "result"), "missing required field `result`"),
        "no messages": (RECEIVE | {"result": "MESSAGES"}, "missing required field `messages`"),
        "messages null": (RECEIVE | {"result": "MESSAGES", "messages": None}, "missing required field `messages`"),
        "messages 0": (RECEIVE | {"result": "MESSAGES", "messages": 0}, "$.messages"),
        "messages negative": (RECEIVE | {"result": "MESSAGES", "messages": -1}, "$.messages"),
        "messages text": (RECEIVE | {"messages": "0"}, "$.messages"),
        "messages over 10^9": (RECEIVE | {"result": "MESSAGES", "messages": 10**9 + 1}, "$.messages"),
        "messages true": (RECEIVE | {"result": "MESSAGES", "messages": True}, "$.messages"),
        "session a number": (RECEIVE | {"session_id": 7}, "$.session_id"),
        "session null": (RECEIVE | {"session_id": None}, "$.session_id"),
        "unknown result": (RECEIVE | {"result": "empty"}, "$.result"),
        "GROUP of a RECEIVE": (RECEIVE | {"result": "GROUP"}, "$.result"),
        "MESSAGES of a GET CONVERSATION GROUP": (GROUP | {"result": "MESSAGES", "messages": 1}, "$.result"),
        "where 1": (RECEIVE | {"where": 1}, "$.where"),
        "where text": (RECEIVE | {"where": "true"}, "$.where"),
        "where null": (RECEIVE | {"where": None}, "$.where"),
        "unread negative": (RECEIVE | {"unread": -1}, "$.unread"),
        "unread over 10^12": (RECEIVE | {"unread": 10**12 + 1}, "$.unread"),
        "unread 0.0": (GROUP | {"unread": 0.0}, "$.unread"),
        "timeout_ms negative": (RECEIVE | {"result": "WAITING", "timeout_ms": -1}, "$.timeout_ms"),
        "timeout_ms over 10^12": (GROUP | {"result": "WAITING", "timeout_ms": 10**12 + 1}, "$.timeout_ms"),
        "an empty transaction": (
            RECEIVE | {"result": "MESSAGES", "messages": 1, "transaction_id": ""},
            "$.transaction_id",
        ),
        "a transaction over 256 characters": (
            RECEIVE | {"result": "MESSAGES", "messages": 1, "transaction_id": "t" * 257},
            "$.transaction_id",
        ),
        "interrupted 1": (COMMIT | {"type": "ROLLBACK", "interrupted": 1}, "$.interrupted"),
        "transaction a number": (RECEIVE | {"transaction_id": 1}, "$.transaction_id"),
        "COMMIT without a transaction": (without(COMMIT, "transaction_id"), "missing required field `transaction_id`"),
        "COMMIT of null": (COMMIT | {"transaction_id": None}, "$.transaction_id"),
        "ROLLBACK without a session": (without(COMMIT, "session_id") | {"type": "ROLLBACK"}, "`session_id`"),
        "SESSION_ENDED of no session": ({"type": "SESSION_ENDED", "queue": "Q"}, "missing required field `session_id`"),
        "a task without an id": (without(TASK, "task_id"), "missing required field `task_id`"),
        "exit_code 1.0": (TASK | {"exit_code": 1.0}, "$.exit_code"),
        "reason a number": (TASK | {"reason": 1}, "$.reason"),
        "type of another topic": (ARRIVAL, "$.type"),
    },
    Source.COMMANDS: {
        "a misspelt field": (NOTIFICATION | {"servise": "s"}, "unknown field `servise`: did you mean `service`?"),
        "a field in capitals": (ALTER | {"STATUS": "OFF"}, "unknown field `STATUS`: did you mean `status`?"),
        "half a name": (ALTER | {"external_activation_timeout": 1}, "did you mean `external_activation_timeout_ms`?"),
        "a field of the activation": (ALTER | {"max_queue_readers": 2}, "it belongs in `activation`"),
        "a misspelt one of the activation": (ALTER | {"max_queue_reader": 2}, "did you mean `max_queue_readers`?"),
        "misspelt in the activation": (ALTER | {"activation": {"procedure": "p"}}, "did you mean `procedure_name`?"),
        "no type": ({"queue": "Q"}, "missing required field `type`"),
        "no notification": (without(NOTIFICATION, "notification"), "missing required field `notification`"),
        "notification null": (NOTIFICATION | {"notification": None}, "$.notification"),
        "service a number": (NOTIFICATION | {"service": 1}, "$.service"),
        "status on": (ALTER | {"status": "on"}, "$.status"),
        "status true": (ALTER | {"status": True}, "$.status"),
        "status null": (ALTER | {"status": None}, "$.status"),
        "poison_message_handling null": (ALTER | {"poison_message_handling": None}, "$.poison_message_handling"),
        "timeout 0": (ALTER | {"external_activation_timeout_ms": 0}, "$.external_activation_timeout_ms"),
        "timeout over a day": (ALTER | {"external_activation_timeout_ms": 86_400_001}, "$.external_activation"),
        "timeout 1.5": (ALTER | {"external_activation_timeout_ms": 1.5}, "$.external_activation_timeout_ms"),
        "activation null": (ALTER | {"activation": None}, "$.activation"),
        "activation OFF": (ALTER | {"activation": "OFF"}, "$.activation"),
        "activation status": (ALTER | {"activation": {"status": "off"}}, "$.activation.status"),
        "max_queue_readers -1": (ALTER | {"activation": {"max_queue_readers": -1}}, "$.activation.max_queue_readers"),
        "max_queue_readers 32768": (ALTER | {"activation": {"max_queue_readers": 32768}}, "$.activation.max_queue"),
        "procedure_name a number": (ALTER | {"activation": {"procedure_name": 1}}, "$.activation.procedure_name"),
        "type of another topic": (RECEIVE, "$.type"),
    },
}


def cases() -> list[Any]:
    every: list[Any] = []
    for source, value in TOPICS.items():
        kinds = broken_in_every_topic(source)
        kinds |= {kind: (record(source, one), reason) for kind, (one, reason) in BROKEN[source].items()}
        kinds |= {
            f"name: {kind}": (record(source, value | {"queue": name}), "one to three parts")
            for kind, name in BAD_NAMES.items()
        }
        every += [pytest.param(*case, id=f"{source.name}-{kind}") for kind, case in kinds.items()]
    return every


@pytest.mark.parametrize(("bad", "reason"), cases())
def test_a_dead_letter_and_the_queue_beside_it_goes_on(bad: Record, reason: str) -> None:
    shard = FakeShard(offset=41)
    outputs = shard.batch(7_000, replace(bad, partition=3), arrival("beside"))

    [letter] = of_topic(outputs, "queue-dead-letters")
    assert (letter.key, letter.value) == (bad.key, bad.value)
    assert reason in letter.headers.pop("reason").decode()
    assert letter.headers == {
        "source_topic": TOPIC_NAMES[bad.source].encode(),
        "source_partition": b"3",
        "source_offset": b"41",
        "source_timestamp": b"7000",
    } | ({"value_bytes": b"1000000"} if bad.value_bytes else {})
    assert [one.key for one in activations(outputs)] == [b"beside"]
    alone = FakeShard()
    alone.batch(7_000, arrival("beside"))
    assert shard.state.value == alone.state.value


@pytest.mark.parametrize(("bad", "reason"), cases())
def test_a_bad_record_between_good_ones_of_its_key_is_a_dead_letter(bad: Record, reason: str) -> None:
    shard, alone = FakeShard(), FakeShard()
    outputs = shard.batch(7_000, arrival(), bad, arrival())
    [letter] = of_topic(outputs, "queue-dead-letters")
    assert (letter.key, letter.value) == (bad.key, bad.value)
    assert reason in letter.headers["reason"].decode()
    alone.batch(7_000, arrival(count=2))
    assert shard.state.value == alone.state.value


GOOD = {
    "the least": ({"queue": "Q"}, Source.ARRIVALS),
    "unknown fields": (ARRIVAL | {"x": None, "y": {"z": [1.5]}, "count ": -1}, Source.ARRIVALS),
    "unknown fields of a command": (ALTER | {"comment": "of sales", "owner": {"servise": 1}}, Source.COMMANDS),
    "other names of a command": (ALTER | {"queue_id": 7, "activation_time": 1, "action": "x"}, Source.COMMANDS),
    "an id of a notification": (NOTIFICATION | {"notification_id": 7}, Source.COMMANDS),
    "count 1": (ARRIVAL | {"count": 1}, Source.ARRIVALS),
    "count 10^9": (ARRIVAL | {"count": 10**9}, Source.ARRIVALS),
    "names at their limit": ({"queue": ".".join(["ü" * 128] * 3)}, Source.ARRIVALS),
    "spaces and signs": ({"queue": " a/b \\ \N{GRINNING FACE}.[x]"}, Source.ARRIVALS),
    "messages 10^9": (RECEIVE | {"result": "MESSAGES", "messages": 10**9}, Source.RECEIVES),
    "unread 0 and timeout_ms 0": (RECEIVE | {"result": "WAITING", "unread": 0, "timeout_ms": 0}, Source.RECEIVES),
    "unread and timeout_ms 10^12": (
        GROUP | {"result": "WAITING", "unread": 10**12, "timeout_ms": 10**12},
        Source.RECEIVES,
    ),
    "killed by a signal": (TASK | {"exit_code": -9, "reason": "killed"}, Source.RECEIVES),
    "timeout 1 ms": (ALTER | {"external_activation_timeout_ms": 1}, Source.COMMANDS),
    "timeout 1 day": (ALTER | {"external_activation_timeout_ms": 86_400_000}, Source.COMMANDS),
    "timeout never": (ALTER | {"external_activation_timeout_ms": None}, Source.COMMANDS),
    "max_queue_readers 0": (ALTER | {"activation": {"max_queue_readers": 0}}, Source.COMMANDS),
    "max_queue_readers 32767": (ALTER | {"activation": {"max_queue_readers": 32767}}, Source.COMMANDS),
    "activation dropped": (ALTER | {"activation": "DROP"}, Source.COMMANDS),
}


@pytest.mark.parametrize(("value", "source"), GOOD.values(), ids=GOOD)
def test_what_keeps_to_the_contract_is_no_dead_letter(value: dict[str, Any], source: Source) -> None:
    assert of_topic(FakeShard().batch(0, record(source, value)), "queue-dead-letters") == []


@pytest.mark.parametrize("source", TOPICS)
def test_a_record_of_64_kib_is_no_dead_letter(source: Source) -> None:
    assert of_topic(FakeShard().batch(0, padded(source, MAX_RECORD_BYTES)), "queue-dead-letters") == []


def test_key_and_value_are_cut_and_the_whole_length_told() -> None:
    key, value = b"k" * 2 * KIB, b"v" * 256 * KIB
    whole = FakeShard().batch(0, Record(Source.ARRIVALS, value, key[:KIB]))
    cut = FakeShard().batch(0, Record(Source.ARRIVALS, value + b"v", key, value_bytes=900_000))

    assert (whole[0].key, whole[0].value) == (key[:KIB], value)
    assert "value_bytes" not in whole[0].headers
    assert (cut[0].key, cut[0].value) == (key[:KIB], value)
    assert cut[0].headers["value_bytes"] == b"900000"


def test_a_reason_that_quotes_the_record_is_cut() -> None:
    [letter] = FakeShard().batch(0, arrival(type="x" * 60_000))
    assert letter.headers["reason"].startswith(b"Invalid value 'xxx")
    assert len(letter.headers["reason"]) == 1_000


def test_the_queue_itself_goes_on_after_a_bad_record_between_good_ones() -> None:
    bad = replace(arrival(count=5), key=b"other")
    outputs = FakeShard().batch(
        0, arrival(count=2), bad, arrival(), command("NONSENSE"), receive("MESSAGES", messages=1)
    )
    [activation] = activations(outputs)
    assert activation.json["unread_messages"] == 2
    assert len(of_topic(outputs, "queue-dead-letters")) == 2


def test_a_timeout_of_null_never_expires() -> None:
    shard = FakeShard()
    outputs = shard.batch(0, command("ALTER_QUEUE", external_activation_timeout_ms=None), arrival())
    assert activations(outputs)[0].json["expires_at"] is None
    assert shard.state.get[3] >= FOREVER_MS
