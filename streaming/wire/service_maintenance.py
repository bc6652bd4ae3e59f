"""The record of a program's periodic tasks and connections in service-maintenance, under the name of the program."""

import msgspec
from msgspec import Struct

from streaming.wire.record_decoders import decoder_of


class TaskRow(Struct):
    """A periodic task; docs/contract.md explains the fields. Times are ISO 8601 in UTC."""

    name: str
    every: int
    purpose: str
    runs: int
    failures: int
    done: int
    last_run: str | None
    last_done: int
    duration_ms: int
    last_error: str
    is_counted: bool = False


class ConnectionRow(Struct):
    """A connection to another instance, as sys.dm_broker_connections shows it."""

    address: str
    state: str
    since: str
    messages: int
    bytes: int
    waiting_bytes: int
    forwarding_messages: int
    forwarding_bytes: int
    unsent: int
    last_error: str
    suppressed_until: str | None


class ProgramRow(Struct):
    """A program that runs, with its periodic tasks and its connections."""

    program: str
    instance: str
    interval_ms: int
    update_time: str
    tasks: list[TaskRow]
    connections: list[ConnectionRow]
    start_time: str | None = None
    is_stopping: bool = False


encode_program = msgspec.json.Encoder().encode
decode_program = decoder_of(ProgramRow)
