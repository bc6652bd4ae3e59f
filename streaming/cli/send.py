"""The command `queue-activation send`: puts messages into a queue."""

import sys
from collections.abc import Iterator
from itertools import islice
from typing import Annotated

import typer

from streaming.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    KafkaConfig,
    TopicPrefix,
    cluster,
    option,
)

# So many lines of standard input are one transaction: all of them visible, or none.
_LINES_AT_A_TIME = 500
_STDIN = "-"


def send(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue, which is a topic of that name.")],
    text: Annotated[
        str, typer.Argument(metavar="[TEXT]", help="The message; `-`: each line of standard input is one.")
    ] = _STDIN,
    group: Annotated[
        str | None,
        option("--conversation-group", "Messages of one group are received in order, by one reader at a time."),
    ] = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    topic_prefix: TopicPrefix = "",
    kafka_config: KafkaConfig = None,
) -> None:
    """Send a message to a queue, or each line of standard input, and report the arrival to the monitor."""
    from producers.producer import Message, QueueProducer

    config = cluster(bootstrap_servers, kafka_config).config
    sent = 0
    with QueueProducer(bootstrap_servers, topic_prefix=topic_prefix, kafka_config=config) as producer:
        for values in _values(text):
            producer.send_many(Message(queue, value, group) for value in values)
            sent += len(values)
    typer.echo(f"{sent:,} message{'s' if sent != 1 else ''} sent to {queue}", err=True)


def _values(text: str) -> Iterator[list[bytes]]:
    if text != _STDIN:
        yield [text.encode()]
        return
    if sys.stdin.isatty():
        typer.echo("each line is a message; Ctrl-D ends", err=True)
        lines_at_a_time = 1
    else:
        lines_at_a_time = _LINES_AT_A_TIME
    lines = (line.rstrip(b"\r\n") for line in sys.stdin.buffer)
    while values := list(islice(lines, lines_at_a_time)):
        yield values


def register(app: typer.Typer) -> None:
    """Adds the command of this module."""
    app.command()(send)
