"""Reads the definitions of databases, services and routes from service-commands, and sends further commands."""

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec
import typer
from confluent_kafka import Message
from msgspec import Struct

from streaming.cli.command_sender import send_commands
from streaming.core.routing.definition_rules import RefusedDefinitionError
from streaming.core.routing.definitions import Definitions
from streaming.errors import UserError
from streaming.kafka.clients import Cluster
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.wire import service_commands
from streaming.wire.decoding import InvalidRecordError, RecordDecoder
from streaming.wire.service_commands import ServiceCommand
from streaming.wire.topics import Topics


def now_ms() -> int:
    """Returns the present, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


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


def execute(kafka: Cluster, topics: Topics, command: ServiceCommand, done: str) -> None:
    """Checks a command against the definitions, sends it, and prints a line.

    Raises:
        UserError: The command is refused, with Service Broker's number if it has one; or Kafka refuses.
    """
    definitions = read_definitions(kafka, topics)
    try:
        command.apply(definitions, now_ms())
    except RefusedDefinitionError as error:
        raise refusal(error) from None
    send_commands(
        kafka,
        topics.service_commands,
        [(command.database, msgspec.json.encode(command))],
        "queue-activation route list",
    )
    typer.echo(done)


def build(kind: type[Struct], **fields: Any) -> ServiceCommand:
    """Returns a command, checked as the router checks its record.

    Raises:
        UserError: A field has an invalid value.
    """
    try:
        return service_commands.decode(fields["database"].encode(), msgspec.json.encode(kind(**fields)))
    except InvalidRecordError as error:
        raise UserError(f"The command is invalid: {error}") from None


def refusal(error: RefusedDefinitionError) -> UserError:
    """Returns the error for the user: the reason, and Service Broker's number."""
    reason = str(error)
    number = f" ({error.number})" if error.number is not None else ""
    return UserError(f"{reason[0].upper()}{reason[1:]}{number}.")


def _decode(message: Message) -> ServiceCommand:
    return service_commands.decode(message.key(), message.value())


def _warn(line: str) -> None:
    typer.echo(f"warning: {line}", err=True)
