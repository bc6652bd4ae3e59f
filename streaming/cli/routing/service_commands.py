"""The definitions of databases, services and routes in service-commands, and the commands that change them."""

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from confluent_kafka import Message
from msgspec import Struct

from streaming.cli.command_sender import send_commands
from streaming.cli.lines import say
from streaming.cli.options import Place
from streaming.cli.routing.router_waits import Patience, router_absence
from streaming.core.routing.definition_rules import RefusedDefinitionError
from streaming.core.routing.definitions import Definitions
from streaming.errors import UserError
from streaming.kafka.clients import Cluster
from streaming.kafka.own_programs import starting
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system import hints, wall_clock
from streaming.wire import service_commands
from streaming.wire.record_decoders import InvalidRecordError, RecordDecoder, by_field, decode_json
from streaming.wire.service_commands import ServiceCommand
from streaming.wire.service_definitions import view_of
from streaming.wire.topics import Topics

# A router takes a command with its next batch.
_TAKEN_WITHIN_S = 10.0
# The router computes these fields from the time of the command's record.
_FROM_RECORDS_TIME = ("expires_at", "epoch")
_POLL_S = 0.05

# A row of service-definitions.
_Row = Mapping[str, Any]
_row_decoder = msgspec.json.Decoder(dict[str, Any])


def read_commands(kafka: Cluster, topics: Topics) -> list[tuple[ServiceCommand, int]]:
    """Returns the valid records of service-commands with their timestamps in ms.

    Raises:
        UserError: Kafka cannot be reached or refuses, or the topic is missing.
    """
    decoder = RecordDecoder("service command", _decode, _warn)
    with TopicFollower(kafka, [topics.service_commands], Start.BEGINNING) as follower:
        decoded = [(decoder.decode(message), message.timestamp()[1]) for message in follower.to_end()]
    return [(command, at_ms) for command, at_ms in decoded if command is not None]


def fold(commands: Iterable[tuple[ServiceCommand, int]]) -> Definitions:
    """Applies commands as the router does. No route has expired until `Definitions.advance` is called."""
    definitions = Definitions.of_new_instance()
    for command, at_ms in commands:
        with suppress(RefusedDefinitionError):
            command.apply(definitions, at_ms)
    return definitions


def read_definitions(kafka: Cluster, topics: Topics) -> Definitions:
    """Returns the definitions in Kafka; raises UserError as `read_commands` does."""
    return fold(read_commands(kafka, topics))


def execute(place: Place, done: str, kind: type[Struct], **fields: Any) -> None:
    """Carries out a command, and prints a line; raises UserError as `build` and `carry_out` do."""
    command = build(kind, **fields)
    carry_out(place.cluster(), place.topics(), command)
    say(done)


def carry_out(kafka: Cluster, topics: Topics, *commands: ServiceCommand) -> None:
    """Sends commands as `send` does, and waits for the router; raises UserError as `send` does."""
    changes = send(kafka, topics, *commands)
    if absent := router_absence(kafka, topics) or starting(kafka, topics, "router"):
        _warn(f"the command takes effect when a router runs: {absent}")
    elif not _has_taken(kafka, topics, changes):
        _warn(f"no router has taken the command within {_TAKEN_WITHIN_S:.0f} s; it takes effect when a router does")


def send(kafka: Cluster, topics: Topics, *commands: ServiceCommand) -> Mapping[bytes, tuple[_Row | None, _Row | None]]:
    """Checks commands against the definitions, and sends them.

    Returns:
        Key in service-definitions -> the row before and after the commands, of the rows that they change.

    Raises:
        UserError: A command is refused, with Service Broker's number if there is one, and no command is sent. Or Kafka
            refuses.
    """
    definitions = read_definitions(kafka, topics)
    before = view_of(definitions)
    try:
        for command in commands:
            command.apply(definitions, wall_clock.now_ms())
    except RefusedDefinitionError as error:
        raise refusal(error) from None
    send_commands(
        kafka,
        topics.service_commands,
        [(command.database, msgspec.json.encode(command)) for command in commands],
        hints.command("route", "list"),
    )
    after = view_of(definitions)
    return {key: (before.get(key), after.get(key)) for key in {*before, *after} if before.get(key) != after.get(key)}


def _has_taken(kafka: Cluster, topics: Topics, changes: Mapping[bytes, tuple[_Row | None, _Row | None]]) -> bool:
    """Waits until a router shows the changes in service-definitions; does not wait if no router has ever run."""
    rows: dict[bytes, _Row] = {}
    deadline_s = time.monotonic() + _TAKEN_WITHIN_S
    patience = Patience("a router to take the command")
    with TopicFollower(kafka, [topics.service_definitions], Start.BEGINNING) as follower:
        while True:
            message = follower.poll(_POLL_S)
            patience.look()
            if message is not None:
                _take_row(rows, message)
            elif follower.is_at_end:
                if not rows or all(shows(rows.get(key), *change) for key, change in changes.items()):
                    return True
                if time.monotonic() >= deadline_s:
                    return False


def shows(found: _Row | None, before: _Row | None, wanted: _Row | None) -> bool:
    """Returns whether a row of the view shows a change.

    A new value that counts from the time of the command's record may differ from the wanted value. The row shows the
    change if its value differs from the former value.
    """
    if found is None or wanted is None:
        return found is wanted
    if any(found.get(name) != value for name, value in wanted.items() if name not in _FROM_RECORDS_TIME):
        return False
    former = before or {}
    return all(
        wanted.get(name) == former.get(name) or found.get(name) != former.get(name) for name in _FROM_RECORDS_TIME
    )


def build(kind: type[Struct], **fields: Any) -> ServiceCommand:
    """Returns a command, checked as the router checks its record.

    Raises:
        UserError: A field has an invalid value.
    """
    try:
        return service_commands.decode(fields["database"].encode(), msgspec.json.encode(kind(**fields)))
    except InvalidRecordError as error:
        raise UserError(f"The command is invalid: {by_field(error)}") from None


def refusal(error: RefusedDefinitionError) -> UserError:
    """Returns the error for the user: the reason, and Service Broker's number."""
    reason = error.reason_and_number
    for what in ("database", "service"):
        reason = reason.replace(f"`{what} list`", f"`{hints.command(what, 'list')}`")
    return UserError(f"{reason[0].upper()}{reason[1:]}.")


def _decode(message: Message) -> ServiceCommand:
    return service_commands.decode(message.key(), message.value())


def _take_row(rows: dict[bytes, _Row], message: Message) -> None:
    """Takes a record of service-definitions. An invalid record is not the router's, and removes the row."""
    key, value = message.key() or b"", message.value()
    try:
        row = None if value is None else decode_json(_row_decoder, value)
    except InvalidRecordError as error:
        _warn(f"a record of service-definitions is passed over: {error}")
        row = None
    if row is None:
        rows.pop(key, None)
    else:
        rows[key] = row


def _warn(line: str) -> None:
    say(f"warning: {line}", err=True)
