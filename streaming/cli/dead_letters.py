"""The command `queue-activation dead-letters`: shows the records that the monitor has refused, with the reasons."""

import json
from typing import Annotated, Any

import typer
from confluent_kafka import Message
from rich.console import Console
from rich.text import Text

from streaming.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    Json,
    KafkaConfig,
    TopicPrefix,
    cluster,
    option,
)
from streaming.core.times import iso_time
from streaming.system.logs import printable
from streaming.wire.topics import Topics

# The most characters of a record's value that a line shows.
_MAX_VALUE_LENGTH = 200


def dead_letters(
    follows: Annotated[bool, option("--follow", "Continue with new dead letters until Ctrl-C.")] = False,
    as_json: Json = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    topic_prefix: TopicPrefix = "",
    kafka_config: KafkaConfig = None,
) -> None:
    """Show the records that the monitor has refused, with the reason and the origin of each."""
    from streaming.kafka.topic_follower import Start, TopicFollower

    console = Console(highlight=False)
    count = 0
    topic = Topics(topic_prefix).dead_letters
    with TopicFollower(cluster(bootstrap_servers, kafka_config), [topic], Start.BEGINNING) as follower:
        for message in follower.forever() if follows else follower.to_end():
            count += 1
            letter = decode(message)
            if as_json:
                typer.echo(json.dumps(letter))
            else:
                console.print(_line(letter), soft_wrap=True)
    if not count and not as_json:
        typer.echo("no dead letters: Kafka holds no record that the monitor has refused")


def decode(message: Message) -> dict[str, Any]:
    """Returns a dead letter as plain values; the value of a missing header is None."""
    headers = {name: value for name, value in dict(message.headers() or []).items() if isinstance(value, bytes)}

    def text(name: str) -> str | None:
        return headers[name].decode(errors="replace") if name in headers else None

    def number(name: str) -> int | None:
        return int(headers[name]) if headers.get(name, b"").isdigit() else None

    timestamp_ms = number("source_timestamp")
    return {
        "reason": text("reason"),
        "topic": text("source_topic"),
        "partition": number("source_partition"),
        "offset": number("source_offset"),
        "time": None if timestamp_ms is None else iso_time(timestamp_ms),
        "key": _text(message.key()),
        "value": _text(message.value()),
    }


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")


def _line(letter: dict[str, Any]) -> Text:
    where = f"{letter['topic']}[{letter['partition']}] offset {letter['offset']}"
    value = letter["value"] or ""
    shown = value if len(value) <= _MAX_VALUE_LENGTH else f"{value[:_MAX_VALUE_LENGTH]} ..."
    return Text.assemble(
        (printable(letter["time"] or "-"), "dim"),
        "  ",
        (printable(letter["reason"] or "no reason"), "red"),
        "\n  ",
        printable(f"{where}, key {letter['key']}: "),
        printable(shown),
    )


def register(app: typer.Typer) -> None:
    """Adds the command of this module."""
    app.command("dead-letters")(dead_letters)
