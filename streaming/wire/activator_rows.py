"""The record of an activator's work for a queue, in queue-activators; docs/contract.md explains the fields."""

from typing import Annotated

import msgspec
from confluent_kafka import Message
from msgspec import Meta, Struct

from streaming.wire.input_records import MAX_IDENTIFIER_LENGTH, Identifier, is_queue_name
from streaming.wire.output_records import Short
from streaming.wire.record_decoders import Int64, InvalidRecordError, decoder_of

# The last line of a program's log is cut to this length.
MAX_LINE = 400


class ProgramRow(Struct):
    """A program that runs."""

    pid: Int64
    start_time: Short


class HeldRow(Struct):
    """A notification that is held."""

    notification_id: str
    sequence: Int64
    why: str


class ExitRow(Struct):
    """The end of the program that ended last."""

    at: Short
    how: str
    is_noticed_later: bool = False


class DecisionRow(Struct):
    """The last decision."""

    at: Short
    action: str
    why: str


class ActivatorRow(Struct):
    """The value of a record of queue-activators: an activator's work for a queue, with the reasons."""

    queue: str
    activator: Identifier
    group_id: str
    host: str
    config_file: str
    entry: str | None = None
    group: str | None = None
    topics: list[str] = []
    refusal: str | None = None
    max: Int64 | None = None
    partitions: Int64 | None = None
    programs: list[ProgramRow] = []
    held: HeldRow | None = None
    crashes: Int64 = 0
    backoff_until: Short | None = None
    gave_up_until: Short | None = None
    fatal_exit_code: Int64 | None = None
    exits_without_receive: Int64 = 0
    nobody_joined: bool = False
    unanswered_since: Short | None = None
    last_exit: ExitRow | None = None
    last: DecisionRow | None = None
    log_file: str | None = None
    last_line: Annotated[str, Meta(max_length=MAX_LINE)] | None = None


encode_row = msgspec.json.Encoder().encode
_decode = decoder_of(ActivatorRow)


def key_of(row: ActivatorRow) -> str:
    """Returns the key of a row. An activator's id has no slash; a queue's name may have slashes."""
    return f"{row.activator}/{row.queue}"


def decode_dated_row(message: Message) -> tuple[str, tuple[ActivatorRow, int] | None]:
    """Returns a record's key, and its row with the time of the record in ms; raises as `decode_row` does."""
    key, row = decode_row(message)
    return key, None if row is None else (row, message.timestamp()[1])


def decode_row(message: Message) -> tuple[str, ActivatorRow | None]:
    """Returns a record's key and its row, which is None for a tombstone; raises InvalidRecordError."""
    key, value = (message.key() or b"").decode(errors="replace"), message.value()
    if value is None:
        return key, None
    row = _decode(value)
    if key != key_of(row) or not is_queue_name(row.queue):
        raise InvalidRecordError("its key is not its activator, a slash and its queue")
    if not 1 <= len(row.group_id) <= MAX_IDENTIFIER_LENGTH:
        raise InvalidRecordError(f"its group_id does not have 1 to {MAX_IDENTIFIER_LENGTH} characters")
    return key, row
