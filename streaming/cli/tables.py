"""The output of `watch` and `tasks`, and the ways in which all views are printed."""

import heapq
import json
import logging
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
import typer
from confluent_kafka import Message
from rich.console import Console, Group, RenderableType
from rich.text import Text

from streaming.cli.lines import say
from streaming.cli.present import NOBODY_MISSING, Present
from streaming.core.activation.settings import DEFAULT_NOTIFICATION
from streaming.core.numbers import plural
from streaming.core.times import date_and_time
from streaming.kafka.clients import Cluster
from streaming.kafka.latest_rows import LatestRows
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system import ages, hints
from streaming.system.ages import has_passed, instant, instant_utc
from streaming.system.logs import printable
from streaming.system.screens import FILE_WIDTH, Column, RecordTable, Sentence, cell
from streaming.system.wrapped_text import columns
from streaming.wire.notifications import Activation, decode
from streaming.wire.output_records import ActivatedTaskRow, MonitorRow
from streaming.wire.record_decoders import InvalidRecordError, RecordDecoder, decode_json
from streaming.wire.topics import Topics

_REASON_STYLES = {
    "MESSAGE_ARRIVED_ON_EMPTY_QUEUE": "green",
    "MESSAGES_ACCUMULATING": "yellow",
    "TIMEOUT_EXPIRED": "bold red",
}

# From this width on, tables and lines have all columns.
_WIDE = 110
# A host that has room takes a task within a second, and within this time on a busy machine.
_TAKEN_WITHIN_MS = 15_000
# The most notifications that are sorted by time at once.
_SORTED = 100_000

_monitor_row_decoder = msgspec.json.Decoder(MonitorRow)
_task_row_decoder = msgspec.json.Decoder(ActivatedTaskRow)
_any_decoder = msgspec.json.Decoder(dict[str, Any])
_log = logging.getLogger(__name__)


def notification_line(activation: Activation, width: int = FILE_WIDTH) -> Text:
    """Returns a line for a record of queue-activations. Below _WIDE columns, the line is shorter and has no date."""
    if activation.event_type == "BROKER_QUEUE_DISABLED":
        why = Text("BROKER_QUEUE_DISABLED after too many rollbacks", "bold red")
    else:
        why = Text(printable(activation.reason or ""), _REASON_STYLES.get(activation.reason or "", ""))
    time, queue = printable(activation.post_time), printable(activation.queue)
    unread, waiting = max(0, activation.unread_messages), activation.tasks_waiting
    if width < _WIDE:
        line = Text.assemble((date_and_time(time)[1], "dim"), " ", (f"{queue:<14}", "bold"))
        line.append(f" #{activation.sequence:<4} unread {unread:<5} ")
    else:
        line = Text.assemble((instant(time), "dim"), "  ", (f"{queue:<24}", "bold"))
        line.append(f" #{activation.sequence:<5} unread {unread:<7} waiting {waiting:<4} ")
    line.append_text(why)
    if activation.notification is not None and activation.notification != DEFAULT_NOTIFICATION:
        line.append(f"  to {printable(activation.notification)}", "cyan")
    return line


def watch(
    follower: TopicFollower,
    console: Console,
    as_json: bool,
    is_from_beginning: bool = False,
    meanwhile: Callable[[], None] | None = None,
) -> None:
    """Prints notifications as they come, until interrupted. Old notifications come first, in order of time.

    Args:
        follower: Reads the notifications.
        console: The console.
        as_json: Whether to print JSON.
        is_from_beginning: Whether the follower begins with old notifications.
        meanwhile: The function to call again and again while no old notification is left.
    """
    decoder, day = RecordDecoder("notification", decode, _warn), ages.today()
    old = follower.to_end() if is_from_beginning else ()
    new = follower.forever(meanwhile)
    for message, activation in chain(_in_order(_decoded(old, decoder)), _decoded(new, decoder)):
        if as_json:
            console.out(_json_line(message, activation), highlight=False)
        else:
            date, _ = date_and_time(printable(activation.post_time))
            if console.width < _WIDE and date != day:
                console.print(date, style="dim")
                day = date
            # Lines are never wrapped: a long name pushes the end of its line out of the window instead.
            console.print(notification_line(activation, console.width), soft_wrap=True)


def _decoded(messages: Iterable[Message], decoder: RecordDecoder[Activation]) -> Iterator[tuple[Message, Activation]]:
    for message in messages:
        activation = decoder.decode(message)
        if activation is not None:
            yield message, activation


def _in_order(found: Iterable[tuple[Message, Activation]]) -> Iterator[tuple[Message, Activation]]:
    """Yields notifications in order of time. Kafka sends one partition after the other."""
    waiting: list[tuple[str, int, Message, Activation]] = []
    for number, (message, activation) in enumerate(found):
        heapq.heappush(waiting, (activation.post_time, number, message, activation))
        if len(waiting) > _SORTED:
            yield heapq.heappop(waiting)[2:]
    while waiting:
        yield heapq.heappop(waiting)[2:]


def _json_line(message: Message, activation: Activation) -> str:
    """Returns a notification as one line of ASCII: the fields of its JSON, or for XML the fields of its headers."""
    try:
        fields = decode_json(_any_decoder, message.value())
    except InvalidRecordError:
        fields = msgspec.to_builtins(activation)
    return json.dumps(fields)


def read_monitors(kafka: Cluster, topics: Topics) -> list[dict[str, Any]]:
    """Returns the current monitors view: one row per queue with the name in `queue`, in order of names.

    Raises:
        UserError: Kafka cannot be reached or denies access, or the topic is missing.
    """
    rows = _read_rows(kafka, topics.monitors, _monitor_row_decoder, "row of a queue monitor")
    # The name is the record's key. Another writer's record may have a field `queue` with another value.
    return [{"queue": name} | rows[name] | {"queue": name} for name in sorted(rows)]


def read_tasks(kafka: Cluster, topics: Topics) -> list[dict[str, Any]]:
    """Returns the running tasks, in order of queues and of start times; raises as `read_monitors` does."""
    rows = _read_rows(kafka, topics.activated_tasks, _task_row_decoder, "row of a task")
    return sorted(rows.values(), key=lambda row: (row["queue"], row["start_time"]))


def row_decoder(decoder: msgspec.json.Decoder[Any]) -> Callable[[Message], tuple[str, dict[str, Any] | None]]:
    """Returns a function that decodes a record of a view to its key and row. `decoder` checks the fields.

    The row has all fields, even those that only a newer monitor writes. It is None for a tombstone.
    """

    def decode_row(message: Message) -> tuple[str, dict[str, Any] | None]:
        key, value = (message.key() or b"").decode(errors="replace"), message.value()
        if value is None:
            return key, None
        decode_json(decoder, value)
        return key, decode_json(_any_decoder, value)

    return decode_row


def _read_rows(
    kafka: Cluster, topic: str, decoder: msgspec.json.Decoder[Any], wanted: str
) -> dict[str, dict[str, Any]]:
    """Returns the last valid row of each key of a compacted topic, with all its fields."""
    latest = LatestRows(wanted, row_decoder(decoder), _warn)
    with TopicFollower(kafka, [topic], Start.BEGINNING) as follower:
        for message in follower.to_end():
            latest.take(message)
    return latest.rows


def _warn(line: str) -> None:
    _log.warning("%s", line)


def table_of(rows: Sequence[Mapping[str, Any]], texts: Collection[str] = (), grouped_by: int = 0) -> RecordTable:
    """Returns rows as a table, with the names of their fields as headings.

    Args:
        rows: The rows.
        texts: The fields that are sentences or instants.
        grouped_by: The number of first fields that neighbouring rows have in common.
    """
    columns_of_rows = [Column(name.replace("_", " "), is_text=name in texts) for name in rows[0]]
    cells = [[cell(word(value)) for value in row.values()] for row in rows]
    return RecordTable(columns_of_rows, cells, gap=2, grouped_by=grouped_by)


def word(value: object) -> str:
    """Returns a value as a text for tables; `--json` has the value itself."""
    if value is None:
        return "-"
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def print_rows(
    rows: list[dict[str, Any]], view: Callable[[list[dict[str, Any]]], RenderableType], if_none: str, as_json: bool
) -> None:
    """Prints one JSON object per row, or a view of the rows, or a line if there are none."""
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row))
    elif rows:
        print_view(view(rows))
    else:
        say(if_none)


def print_view(view: RenderableType) -> None:
    """Prints a view to standard output: as wide as the terminal, or in full width into a file or a pipe."""
    # Only identifiers are too wide for the screen, and they are never cut.
    Console(width=width(), highlight=False).print(view, crop=False)


def width() -> int:
    """Returns the width of standard output in columns."""
    return min(columns(sys.stdout), FILE_WIDTH - 1) if sys.stdout.isatty() else FILE_WIDTH


def is_narrow() -> bool:
    """Returns whether standard output has no room for all columns of a wide table."""
    return width() < _WIDE


def tasks_view(rows: list[dict[str, Any]], present: Present = NOBODY_MISSING) -> Group:
    """Returns the running tasks for people; `tasks --json` has all fields.

    Gives advice about tasks that no host has taken, unless a host may still take them.
    """
    waiting = sorted(row["start_time"] for row in rows if not row["is_confirmed"])
    if not waiting or (present.host is not False and not has_passed(waiting[0], _TAKEN_WITHIN_MS)):
        return Group(_tasks_table(rows, present))
    since = f"{'the first ' if len(waiting) > 1 else ''}since {instant_utc(waiting[0])}"
    what_to_do = f"Does a host run? One is started with: `{hints.command('host', '--config', 'FILE')}`"
    if present.host is not None:
        nobody = f"None runs{' that would take a further one' if present.stopping else ''}"
        busy = "Each host runs at most `handlers` of its file at a time; if it runs fewer, the end of its log says why"
        what_to_do = busy if present.host else nobody
    line = f"no host {'has' if present.monitor else 'had'} taken {plural(len(waiting), 'task')}, {since}. {what_to_do}"
    return Group(_tasks_table(rows, present), Text(), Sentence(line, "yellow"))


def _tasks_table(rows: list[dict[str, Any]], present: Present) -> RecordTable:
    columns_of_rows = [
        *map(Column, ("queue", "procedure")),
        Column("activation", is_number=True),
        Column("since (UTC)", is_text=True),
        *map(Column, ("host", "task")),
    ]
    cells = [
        [
            cell(row["queue"]),
            cell(row["procedure_name"] or "-"),
            Text(str(row["sequence"] or "-")),
            cell(instant(row["start_time"])),
            _host_cell(row, present),
            cell(row["task_id"][:8]),
        ]
        for row in rows
    ]
    return RecordTable(columns_of_rows, cells)


def _host_cell(row: Mapping[str, Any], present: Present) -> Text:
    if not row["is_confirmed"]:
        return Text("not taken yet", "yellow")
    return cell(row["host"] or "-") + Text(", stopping" if row["host"] in present.stopping else "", "yellow")
