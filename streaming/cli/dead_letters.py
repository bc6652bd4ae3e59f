"""The command `queue-activation dead-letters`: shows the records that were refused, with the reasons."""

import json
from contextlib import suppress
from typing import Annotated, Any

import typer
from confluent_kafka import Message
from rich.console import Console
from rich.text import Text

from streaming.cli.lines import say
from streaming.cli.options import Json, Place
from streaming.cli.routing.router_waits import has_router_run, router_absence
from streaming.cli.unused_services import shows_services
from streaming.core.texts import cut
from streaming.core.times import iso_time
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system import hints
from streaming.system.ages import instant
from streaming.system.logs import printable
from streaming.system.options import option
from streaming.wire.headers import decoded_headers
from streaming.wire.record_decoders import InvalidRecordError

# The most characters of a record's value that a line shows.
MAX_VALUE_LENGTH = 200
# The most digits of a number of 64 bits.
_MAX_DIGITS = 19


@shows_services("no dead letters")
def dead_letters(
    follows: Annotated[bool, option("--follow", "Continue with new dead letters until Ctrl-C.")] = False,
    services: Annotated[
        bool, option("--services", "Show what router and transports have refused, such as messages for services.")
    ] = False,
    as_json: Json = False,
    *,
    place: Place,
) -> None:
    """Show the records that the monitor has refused, or those of services, with the reason and the origin of each."""
    console = Console(highlight=False)
    count = 0
    topics = place.topics()
    topic = topics.service_dead_letters if services else topics.dead_letters
    kafka = place.cluster()
    with TopicFollower(kafka, [topic], Start.BEGINNING) as follower:
        for message in follower.forever() if follows else follower.to_end():
            count += 1
            letter = decode(message) | (of_service(message) if services else {})
            if as_json:
                typer.echo(json.dumps(letter))
            else:
                console.print(_line(letter), soft_wrap=True)
    if not count and not as_json:
        who = "router or a transport has" if services else "monitor has"
        more = "" if services else f". `{hints.command('dead-letters', '--services')}` shows those of services"
        say(f"no dead letters: Kafka holds no record that the {who} refused{more}")
    if services and not as_json and (absent := router_absence(kafka, topics)) is not None:
        since = "What has been sent since the last one ran, nobody has refused yet"
        never = "No router has run yet, so none has refused what has been sent"
        say(f"{absent}. {since if has_router_run(kafka, topics) else never}.", err=True)


def decode(message: Message) -> dict[str, Any]:
    """Returns a dead letter as plain values; the value of a missing header is None."""
    headers = _headers(message)
    timestamp_ms = _number(headers, "source_timestamp")
    return {
        "reason": _text(headers.get("reason")),
        "topic": _text(headers.get("source_topic")),
        "partition": _number(headers, "source_partition"),
        "offset": _number(headers, "source_offset"),
        "time": _time(timestamp_ms),
        "key": _text(message.key()),
        "value": _text(message.value()),
    }


def of_service(message: Message) -> dict[str, Any]:
    """Returns the fields that only dead letters of services have."""
    headers = _headers(message)
    return {"number": _number(headers, "number"), "envelope": _text(headers.get("envelope"))}


def _headers(message: Message) -> dict[str, bytes]:
    with suppress(InvalidRecordError):  # written by another program, and shown without headers
        return {name: value for name, value in decoded_headers(message) if value is not None}
    return {}


def _number(headers: dict[str, bytes], name: str) -> int | None:
    """Returns a header's number; None if the header is not a number. Python refuses numbers of very many digits."""
    text = headers.get(name, b"")
    return int(text) if text.isdigit() and len(text) <= _MAX_DIGITS else None


def _time(timestamp_ms: int | None) -> str | None:
    """Returns an instant as text; None without an instant, or for an instant after the year 9999."""
    with suppress(ValueError, OverflowError, OSError):
        return None if timestamp_ms is None else iso_time(timestamp_ms)
    return None


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")


def _line(letter: dict[str, Any]) -> Text:
    where = f"{letter['topic']}[{letter['partition']}] offset {letter['offset']}"
    number = "" if letter.get("number") is None else f" ({letter['number']})"
    line = Text.assemble(
        (instant(letter["time"]), "dim"),
        "  ",
        (printable(letter["reason"] or "no reason"), "red"),
        number,
        "\n  ",
        printable(f"{where}, key {letter['key']}: "),
        printable(cut(letter["value"] or "", MAX_VALUE_LENGTH)),
    )
    if letter.get("envelope") is not None:
        line.append(f"\n  envelope {printable(cut(letter['envelope'], 4 * MAX_VALUE_LENGTH))}")
    return line
