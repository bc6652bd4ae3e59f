"""The command `queue-activation send`: sends messages to a queue."""

import sys
from collections.abc import Iterator
from queue import Empty, Queue
from threading import Thread
from typing import Annotated

import typer

from streaming.cli.lines import say
from streaming.cli.options import Place
from streaming.core.numbers import plural
from streaming.errors import UserError
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import ClientUnusableError, TransactionAbortedError
from streaming.system.options import option
from streaming.wire.topics import Topics

# The most lines of standard input in one transaction.
_LINES_AT_A_TIME = 500
_STDIN = "-"


def send(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue, which is the topic of that name.")],
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="The message; `-`: each line of standard input is a message.")
    ] = _STDIN,
    group: Annotated[
        str | None,
        option("--conversation-group", "Messages of one group are received in order, by one reader at a time."),
    ] = None,
    *,
    place: Place,
) -> None:
    """Send a message, or each line of standard input, to a queue, and report the arrival."""
    from producers.producer import Message, QueueProducer
    from producers.queue_topics import NoTopicError
    from streaming.cli import queue_facts, queue_losses

    kafka = place.cluster()
    _warn_of_services(kafka, place.topics(), queue)
    sent = 0
    with QueueProducer(place.bootstrap_servers, topic_prefix=place.topic_prefix, kafka_config=kafka.config) as producer:
        for values in _values(text):
            try:
                producer.send_many(Message(queue, value, group) for value in values)
            except (TransactionAbortedError, ClientUnusableError) as error:
                raise UserError(f"{error}. {sent:,} messages were sent before this error.") from None
            except NoTopicError as error:
                raise queue_facts.without_topic(kafka, place.topics(), queue, error) from None
            sent += len(values)
    say(f"{plural(sent, 'message')} sent to {queue}", err=True)
    queue_losses.warn_of_nobody(kafka, place.topics(), [queue])


def _warn_of_services(kafka: Cluster, topics: Topics, queue: str) -> None:
    """Warns that programs of services may not expect messages of this command in their queue."""
    from streaming.cli.routing.queue_services import leading_to

    for service in leading_to(kafka, topics, queue):
        say(
            f"warning: queue {queue} is that of service {service.name} in database {service.database}. This message "
            "belongs to no conversation, so its programs may fail at it. Messages for the service are sent by "
            "producers.services.ServiceClient",
            err=True,
        )


def _values(text: str) -> Iterator[list[bytes]]:
    """Yields lists of messages. A list has the messages that are available at the same time."""
    if text != _STDIN:
        yield [text.encode()]
        return
    if sys.stdin.isatty():
        say("Each line is a message. Ctrl-D ends the input.", err=True)
    lines: Queue[bytes | None] = Queue(2 * _LINES_AT_A_TIME)
    Thread(target=_read_lines, args=[lines], daemon=True).start()
    while (line := lines.get()) is not None:
        values = [line]
        while len(values) < _LINES_AT_A_TIME:
            try:
                line = lines.get_nowait()
            except Empty:
                break
            if line is None:
                yield values
                return
            values.append(line)
        yield values


def _read_lines(lines: "Queue[bytes | None]") -> None:
    for line in sys.stdin.buffer:
        lines.put(line.rstrip(b"\r\n"))
    lines.put(None)
