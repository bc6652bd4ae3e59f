"""Random input records, from valid ones to nonsense, and a check of them that is independent of the monitor's code.

`is_valid` implements the contract a second time, with Python's own JSON decoder. Tests compare the monitor's refusals
with it.
"""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any

from streaming.spark.activation.sources import Source
from tests.support.fake_spark import Record
from tests.support.json_fuzzer import JsonFuzzer

MAX_RECORD_BYTES = 65_536
# Longer keys and values are cut to this length before they leave the JVM.
KEY_CUT_BYTES, VALUE_CUT_BYTES = 2_048, 262_144

SOURCES = (Source.ARRIVALS, Source.RECEIVES, Source.COMMANDS)

Check = Callable[[Any], bool]


def _text(longest: int) -> Check:
    return lambda value: isinstance(value, str) and 1 <= len(value) <= longest


def _integer(least: int, most: int) -> Check:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _one_of(*values: str) -> Check:
    return lambda value: isinstance(value, str) and value in values


def _or_null(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _is_activation(value: Any) -> bool:
    return value == "DROP" or (isinstance(value, dict) and _fits(value, {}, ACTIVATION))


def _is_text(value: Any) -> bool:
    return isinstance(value, str | None)


IDENTIFIER, ON_OFF = _text(256), _one_of("ON", "OFF")
SESSION = {"session_id": IDENTIFIER}
TRANSACTION = SESSION | {"transaction_id": IDENTIFIER}
UNREAD = _or_null(_integer(0, 10**12))
NUMBER = _or_null(_integer(-(10**99), 10**99))
STATEMENT = {"transaction_id": _is_text, "timeout_ms": NUMBER, "unread": UNREAD}
EXIT_CODE = _or_null(_integer(-(2**31), 2**31 - 1))
INTERRUPTED = {"interrupted": lambda value: isinstance(value, bool)}
ACTIVATION = {
    "status": ON_OFF,
    "procedure_name": _or_null(_text(386)),
    "max_queue_readers": _or_null(_integer(0, 32_767)),
    "execute_as": _or_null(IDENTIFIER),
}
DEFINITION = {
    "status": ON_OFF,
    "activation": _is_activation,
    "poison_message_handling": ON_OFF,
    "external_activation_timeout_ms": _or_null(_integer(1, 86_400_000)),
}
MESSAGES = {"messages": NUMBER, "where": lambda value: isinstance(value, bool)}
# (type, result) -> what is ignored with other results
USED: dict[tuple[str, str], dict[str, Check]] = {
    ("RECEIVE", "MESSAGES"): {"messages": _integer(1, 10**9), "transaction_id": _or_null(IDENTIFIER)},
    ("RECEIVE", "WAITING"): {"timeout_ms": UNREAD},
    ("GET_CONVERSATION_GROUP", "WAITING"): {"timeout_ms": UNREAD},
}
# type -> required fields, optional fields; all have `queue` too
TYPES: dict[Source, dict[str, tuple[dict[str, Check], dict[str, Check]]]] = {
    Source.ARRIVALS: {"MESSAGE_ARRIVED": ({}, {"count": _integer(1, 10**9)})},
    Source.RECEIVES: {
        "RECEIVE": (SESSION | {"result": _one_of("MESSAGES", "EMPTY", "WAITING")}, STATEMENT | MESSAGES),
        "GET_CONVERSATION_GROUP": (SESSION | {"result": _one_of("GROUP", "EMPTY", "WAITING")}, STATEMENT),
        "COMMIT": (TRANSACTION, {}),
        "ROLLBACK": (TRANSACTION, INTERRUPTED),
        "SESSION_ALIVE": (SESSION, {}),
        "SESSION_ENDED": (SESSION, INTERRUPTED),
        "TASK_STARTED": ({"task_id": IDENTIFIER}, {"host": _or_null(IDENTIFIER)}),
        "TASK_EXITED": ({"task_id": IDENTIFIER}, {"exit_code": EXIT_CODE, "reason": _is_text}),
        "TASK_FAILED_TO_START": ({"task_id": IDENTIFIER}, {"exit_code": NUMBER, "reason": _is_text}),
    },
    Source.COMMANDS: {
        "CREATE_QUEUE": ({}, DEFINITION),
        "ALTER_QUEUE": ({}, DEFINITION),
        "DROP_QUEUE": ({}, {}),
        "CREATE_EVENT_NOTIFICATION": ({"notification": _text(128)}, {"service": _or_null(IDENTIFIER)}),
        "DROP_EVENT_NOTIFICATION": ({"notification": _text(128)}, {}),
    },
}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class _RepeatedFieldError(Exception):
    """Two fields have the same name. The contract does not say which field counts."""


def is_valid(record: Record) -> bool | None:
    """Returns whether a record keeps to the contract; None if the contract does not say."""
    try:
        fields = _fields_of(record)
    except _RepeatedFieldError:
        return None
    except (ValueError, RecursionError):
        return False
    kind = fields.get("type", "MESSAGE_ARRIVED" if record.source == Source.ARRIVALS else None)
    types = TYPES[record.source]
    if not (isinstance(kind, str) and kind in types and _fits(fields, *types[kind])):
        return False
    used = USED.get((kind, str(fields.get("result"))), {})
    if not all(check(fields.get(name)) for name, check in used.items()):
        return False
    return record.source != Source.COMMANDS or not _has_misspelt(fields, kind)


def _has_misspelt(fields: dict[str, Any], kind: str) -> bool:
    """Returns whether the name of an unknown field of a command is nearly the name of a known field."""
    required, optional = TYPES[Source.COMMANDS][kind]
    known = {"type", "queue", *required, *optional}
    inner = {"status", "procedure_name", "max_queue_readers", "execute_as"}
    clause = fields.get("activation") if "activation" in optional else None
    if isinstance(clause, dict) and any(_is_nearly(name, inner) for name in clause.keys() - inner):
        return True
    inner = inner if optional is DEFINITION else set()
    return any(name in inner or _is_nearly(name, known | inner) for name in fields.keys() - known)


def _is_nearly(name: str, known: set[str]) -> bool:
    likeness, nearest = max((SequenceMatcher(None, name.lower(), each).ratio(), each) for each in known)
    return likeness >= 0.78 and f"_{nearest}_" not in f"_{name}_"


def _fields_of(record: Record) -> dict[str, Any]:
    """Returns the record's fields.

    Raises:
        ValueError: The record is not JSON about the queue that is its key.
        RecursionError: The JSON is nested too deeply.
    """
    key, value = record.key, record.value
    if key is None or value is None or len(key) + (record.value_bytes or len(value)) > MAX_RECORD_BYTES:
        raise ValueError
    fields = json.loads(
        value.decode(), parse_constant=_no_constant, parse_int=_parse_int, object_pairs_hook=_fields_once
    )
    json.dumps(fields, ensure_ascii=False).encode()  # half a surrogate pair is not valid text
    if not isinstance(fields, dict) or not _is_name(fields.get("queue")) or fields["queue"].encode() != key:
        raise ValueError
    return fields


def _fits(fields: dict[str, Any], required: dict[str, Check], optional: dict[str, Check]) -> bool:
    return required.keys() <= fields.keys() and all(
        check(fields[name]) for name, check in (required | optional).items() if name in fields
    )


def _is_name(name: Any) -> bool:
    parts = name.split(".") if isinstance(name, str) else []
    return 1 <= len(parts) <= 3 and all(1 <= len(part) <= 128 and not _CONTROL.search(part) for part in parts)


def _no_constant(_name: str) -> Any:
    raise ValueError("NaN and Infinity are not valid JSON")


def _parse_int(digits: str) -> int:
    return int(digits[:30])  # longer than every limit; Python refuses thousands of digits


def _fields_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise _RepeatedFieldError
    return dict(pairs)


IDENTIFIERS = ("a", "b", "c", "d", "e", "f", "g", "\0", "\u202e", "\u0301" * 128, "\U0010ffff" * 128, "default")


class Fuzzer(JsonFuzzer):
    """Random records for random input topics.

    Args:
        seed: The same seed gives the same records.
        queues: Names of the queues of valid records.
        others: Names of queues that only invalid records may have.
    """

    def __init__(self, seed: int, queues: list[str], others: list[str]) -> None:
        super().__init__(seed)
        self.queues = queues
        self.others = others

    def record(self, is_text: bool = False) -> Record:
        """Returns a record. With `is_text` it has a key, and a short value in valid UTF-8."""
        while True:
            record = self._any(is_text)
            if record.key is None or record.key.decode(errors="replace") not in self.others or not is_valid(record):
                return record

    def _any(self, is_text: bool) -> Record:
        random = self.random
        source = random.choices(SOURCES, (4, 8, 3))[0]
        kinds = [self._valid, self._nearly, self._nearly, self._syntax]
        if not is_text:
            kinds += [self._bytes, self._key, self._nonsense]
        return random.choice(kinds)(source)

    def _valid(self, source: Source) -> Record:
        fields = self._fields(source)
        return _record(source, fields, json.dumps(fields, ensure_ascii=self.random.random() < 0.5))

    def _nearly(self, source: Source) -> Record:
        random, fields = self.random, self.nearly(self._fields(source))
        queue = fields.get("queue")
        key = queue if isinstance(queue, str) and random.random() < 0.8 else random.choice(self.others)
        return replace(_record(source, fields, json.dumps(fields)), key=key.encode())

    def _syntax(self, source: Source) -> Record:
        fields = self._fields(source)
        return _record(source, fields, self.syntax(fields))

    def _bytes(self, source: Source) -> Record:
        record = self._valid(source)
        return replace(record, value=self.some_bytes(record.value or b""))

    def _key(self, source: Source) -> Record:
        """Returns a record that is valid but for its key."""
        record, random = self._valid(source), self.random
        whole = record.key or b""
        key = random.choice((None, b"", whole + b"\0", whole[:-1], b"\xff" + whole, b"k" * 5_000, whole.upper()))
        return replace(record, key=random.choice((key, random.choice(self.others).encode())))

    def _nonsense(self, source: Source) -> Record:
        return Record(source, self.nonsense(), self.random.choice(self.queues + self.others).encode())

    def _fields(self, source: Source) -> dict[str, Any]:
        """Returns the fields of a valid record."""
        random = self.random
        kind, (required, optional) = random.choice(list(TYPES[source].items()))
        fields: dict[str, Any] = {"type": kind, "queue": random.choice(self.queues)}
        for name in [*required, *(name for name in optional if random.random() < 0.4)]:
            fields[name] = self._value(name)
        if kind == "GET_CONVERSATION_GROUP" and fields["result"] == "MESSAGES":
            fields["result"] = "GROUP"
        if fields.get("result") == "MESSAGES":
            fields["messages"] = self._value("messages")
        return fields

    def _value(self, name: str) -> Any:
        random = self.random
        values: dict[str, Callable[[], Any]] = {
            "result": lambda: random.choice(("MESSAGES", "EMPTY", "WAITING")),
            "where": lambda: random.random() < 0.5,
            "interrupted": lambda: random.random() < 0.5,
            "exit_code": lambda: random.choice((0, 1, -9)),
            "status": lambda: random.choice(("ON", "ON", "OFF")),
            "poison_message_handling": lambda: random.choice(("ON", "OFF")),
            "activation": lambda: {key: self._value(key) for key in ACTIVATION if random.random() < 0.5} or "DROP",
            "max_queue_readers": lambda: random.choice((0, 1, 32_767)),
        }
        if name in values:
            return values[name]()
        if name in ("count", "messages", "unread", "timeout_ms", "external_activation_timeout_ms"):
            return random.choice((1, 2, 7, 5_000, 10**9 if name != "external_activation_timeout_ms" else 86_400_000))
        return random.choice(IDENTIFIERS)


def _record(source: Source, fields: dict[str, Any], text: str) -> Record:
    return Record(source, text.encode(), str(fields.get("queue")).encode(errors="replace"))


def as_read(record: Record) -> Record:
    """Returns a record as it leaves the JVM."""
    value = record.value
    if value is not None and len(value) > VALUE_CUT_BYTES:
        record = replace(record, value=value[:VALUE_CUT_BYTES], value_bytes=len(value))
    return replace(record, key=record.key and record.key[:KEY_CUT_BYTES])
