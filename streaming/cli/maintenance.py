"""The commands `queue-activation maintenance` and `connections`: periodic tasks, and links to other instances."""

import json
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any

import msgspec
import typer
from confluent_kafka import Message
from rich.console import Group
from rich.text import Text

from streaming.cli import tables
from streaming.cli.lines import say
from streaming.cli.options import Json, Place
from streaming.cli.presence import say_if_starting
from streaming.core.times import iso_time
from streaming.kafka.clients import Cluster
from streaming.kafka.latest_rows import LatestRows
from streaming.kafka.own_programs import how_to_start, with_advice
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system import durations, hints, wall_clock
from streaming.system.ages import instant, instant_utc
from streaming.system.options import option
from streaming.system.screens import Sentence
from streaming.wire.service_maintenance import ConnectionRow, ProgramRow, TaskRow, decode_program
from streaming.wire.topics import Topics

# A program that has not written this number of rows in a row hangs, or does not run.
_MISSED = 3
_DAY_MS = 86_400_000
# Only one monitor and one router runs at a time, so the program that wrote last has replaced the others.
_SOLE = ("monitor", "router")
_MAY_NOT_WRITE = "none has the right Write on the topic service-maintenance"
_COUNTED = (
    "A task that took - is done as soon as an event makes it due. Turns at which it had nothing to do are no runs"
)

_log = logging.getLogger(__name__)


def maintenance(
    watches: Annotated[
        bool, option("--watch", "Then show each run that did something or failed, until Ctrl-C.")
    ] = False,
    as_json: Json = False,
    *,
    place: Place,
) -> None:
    """Show the periodic tasks of the programs that run: when each was last done, and what it has done.

    A task is done on every notification, on every 2nd or on every 5th. Notifications come every 5 s, and "every" is the
    time from one turn to the next. The task's line below the table names the things that "did" counts. Monitor, host
    and router do some tasks as soon as an event makes them due. At its turn, such a task only counts the work since its
    last turn, and has no duration ("-"). A program that has not been seen for a while is named below the table.
    Observers and activators have no periodic tasks.
    """
    found, kafka, topics = _Programs(), place.cluster(), place.topics()
    with _follower(kafka, topics) as follower:
        programs = found.read(follower)
        say_if_starting(kafka, topics)
        if as_json:
            _print_lines(_task_fields(row, task) for row in programs for task in row.tasks)
        else:
            _print_tasks(programs, partial(how_to_start, kafka, topics))
        if not watches:
            return
        shown = {(row.instance, task.name): task for row in programs for task in row.tasks}
        for message in follower.forever():
            row = found.take(message)
            if row is None:
                continue
            for task in row.tasks:
                before = shown.get((row.instance, task.name))
                shown[row.instance, task.name] = task
                has_failed = task.failures > (0 if before is None else before.failures)
                did = bool(task.last_done) and task.runs > (0 if before is None else before.runs)
                if did or has_failed:
                    _print_run(row, task, has_failed=has_failed, as_json=as_json)


def connections(as_json: Json = False, *, place: Place) -> None:
    """Show the connections of running transports to other instances, as sys.dm_broker_connections did.

    A destination is left alone for 15 s after a disconnection and for 60 s after an attempt that has failed:
    "suppressed until". Messages wait meanwhile: `queue-activation transmissions`.
    """
    kafka, topics = place.cluster(), place.topics()
    programs = read(kafka, topics)
    say_if_starting(kafka, topics)
    if as_json:
        _print_lines(
            {**msgspec.to_builtins(each), "instance": row.instance, "update_time": row.update_time}
            for row, each in connections_of(programs)
        )
    else:
        _print_connections(programs, partial(how_to_start, kafka, topics))


class _Programs:
    """The programs with a row in service-maintenance, except programs that a later program has replaced."""

    def __init__(self) -> None:
        self._latest: LatestRows[ProgramRow] = LatestRows(
            "record of periodic tasks", _decode, lambda line: _log.warning("%s", line)
        )
        # Kind of program -> the program that wrote last; kind of program -> start of the program that was started last.
        self._last: dict[str, str] = {}
        self._started: dict[str, str] = {}

    def take(self, message: Message) -> ProgramRow | None:
        """Takes a record, and returns its row."""
        key = self._latest.take(message)
        if key is None:
            return None
        row = self._latest.rows.get(key)
        kind = key.partition("/")[0]
        self._last[kind] = key
        if row is not None and row.start_time is not None:
            self._started[kind] = max(row.start_time, self._started.get(kind, ""))
        return row

    def read(self, follower: TopicFollower) -> list[ProgramRow]:
        """Reads the topic to its end. Returns the programs in the order of their names."""
        for message in follower.to_end():
            self.take(message)
        return [row for key, row in sorted(self._latest.rows.items()) if not self._is_replaced(key, row)]

    def _is_replaced(self, key: str, row: ProgramRow) -> bool:
        """Returns whether a program was killed or hangs, and another program was started after it."""
        kind = key.partition("/")[0]
        has_successor = (kind in _SOLE and self._last[kind] != key) or self._started.get(kind, "") > row.update_time
        return has_successor and is_gone(row)


def _decode(message: Message) -> tuple[str, ProgramRow | None]:
    key, value = (message.key() or b"").decode(errors="replace"), message.value()
    return key, None if value is None else decode_program(value)


def read(kafka: Cluster, topics: Topics) -> list[ProgramRow]:
    """Returns the rows of the programs in the order of their names, including programs that do not run.

    Raises:
        UserError: Kafka cannot be reached or denies access, or the topic is missing.
    """
    with _follower(kafka, topics) as follower:
        return _Programs().read(follower)


def _follower(kafka: Cluster, topics: Topics) -> TopicFollower:
    return TopicFollower(kafka, [topics.service_maintenance], Start.BEGINNING)


def _print_tasks(programs: list[ProgramRow], how_to_start: Callable[[str], str]) -> None:
    found = [(row, task) for row in programs if not is_gone(row) for task in row.tasks]
    _print_table(
        [_task_view(row, task) for row, task in found],
        [
            *gone(programs, how_to_start),
            *(f"{row.program} {row.instance} is stopping" for row, _ in found if row.is_stopping),
            *(f"{task.name} last failed: {task.last_error}" for _, task in found if task.last_error),
        ],
        f"none: no monitor, router, transport or host runs, or {_MAY_NOT_WRITE}",
        [
            *dict.fromkeys(f"{task.name}: {task.purpose}" for _, task in found),
            *([_COUNTED] if any(task.is_counted for _, task in found) else []),
            f"Observers and activators have no periodic tasks: `{hints.command('diagnose')}` says if one does not work",
        ],
    )


def is_gone(row: ProgramRow, since_ms: int | None = None) -> bool:
    """Returns whether a program has not written its row for a time, by default _MISSED of its intervals.

    A program that stops as asked removes its row. A program that is killed leaves its row.
    """
    ago_ms = _MISSED * row.interval_ms if since_ms is None else since_ms
    return row.update_time < iso_time(wall_clock.now_ms() - ago_ms)


def gone(programs: list[ProgramRow], how_to_start: Callable[[str], str]) -> list[str]:
    """Returns a line for each program that has left a row within the last day. Kafka keeps the row forever."""
    alive = {row.program for row in programs if not is_gone(row)}
    return [
        with_advice(
            f"{row.program} {row.instance} was last seen at {instant_utc(row.update_time)}, so it hangs or was killed",
            "" if row.program in alive else how_to_start(row.program),
        )
        for row in programs
        if is_gone(row) and not is_gone(row, _DAY_MS)
    ]


def connections_of(programs: Iterable[ProgramRow]) -> list[tuple[ProgramRow, ConnectionRow]]:
    """Returns the connections of programs, each with its program."""
    return [(row, each) for row in programs for each in sorted(row.connections, key=lambda each: each.address)]


def _print_connections(programs: list[ProgramRow], how_to_start: Callable[[str], str]) -> None:
    transports = [row for row in programs if row.program == "transport"]
    alive = [row for row in transports if not is_gone(row)]
    found = connections_of(alive)
    _print_table(
        [_connection_view(row, each) for row, each in found],
        [*gone(transports, how_to_start), *(problem(each) for _, each in found)],
        f"none: no transport {'has one' if alive else f'runs, or {_MAY_NOT_WRITE}'}",
    )


def _task_fields(row: ProgramRow, task: TaskRow) -> dict[str, Any]:
    fields = {"program": row.program, **msgspec.to_builtins(task)}
    return {**fields, "instance": row.instance, "update_time": row.update_time}


def _task_view(row: ProgramRow, task: TaskRow) -> dict[str, str]:
    return {
        "program": f"{row.program} {row.instance}",
        "seen (UTC)": instant(row.update_time),
        "task": task.name,
        "every": str(durations.of(task.every * row.interval_ms)),
        "last run (UTC)": instant(task.last_run),
        "did": f"{task.last_done:,}",
        "took ms": "-" if task.is_counted else f"{task.duration_ms:,}",
        "runs": f"{task.runs:,}",
        "failures": f"{task.failures:,}",
        "did in all": f"{task.done:,}",
    }


def _connection_view(row: ProgramRow, connection: ConnectionRow) -> dict[str, str]:
    waits = f"{connection.forwarding_messages:,} ({connection.forwarding_bytes:,} B)"
    return {
        "transport": row.instance,
        "seen (UTC)": instant(row.update_time),
        "address": connection.address,
        "state": connection.state,
        "since (UTC)": instant(connection.since),
        "sent": f"{connection.messages:,}",
        "bytes": f"{connection.bytes:,}",
        "unsent": f"{connection.unsent:,}",
        "to be sent on": waits,
    }


def problem(connection: ConnectionRow) -> str:
    """Returns the last error of a connection; empty if there is none."""
    until = f"suppressed until {instant_utc(connection.suppressed_until)}: " if connection.suppressed_until else ""
    return f"{connection.address}: {until}{connection.last_error}" if connection.last_error else ""


def _print_lines(rows: Iterable[dict[str, Any]]) -> None:
    for row in rows:
        typer.echo(json.dumps(row))


def _print_table(rows: list[dict[str, str]], problems: list[str], empty: str, legend: Iterable[str] = ()) -> None:
    """Prints a table of programs, then the problems and the legend."""
    lines = [Sentence(problem, "red") for problem in dict.fromkeys(problems) if problem]
    meanings = [Sentence(meaning, "dim") for meaning in legend]
    if not rows:
        say(empty)
        tables.print_view(Group(*lines, *meanings))
        return
    table = tables.table_of(rows, ["seen (UTC)", "last run (UTC)", "since (UTC)"], grouped_by=2)
    gap = [Text()] if lines or meanings else []
    tables.print_view(Group(table, *gap, *lines, *meanings))


def _print_run(row: ProgramRow, task: TaskRow, *, has_failed: bool, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(_task_fields(row, task)))
        return
    what = f"has failed: {task.last_error}" if has_failed else f"did {task.last_done:,}"
    say(f"{instant(task.last_run)}  {row.program} {row.instance}  {task.name} {what}")
