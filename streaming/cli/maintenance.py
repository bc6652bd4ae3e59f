"""The commands `queue-activation maintenance` and `connections`: periodic tasks, and links to other instances."""

import json
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from streaming.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    Json,
    KafkaConfig,
    TopicPrefix,
    cluster,
    option,
)
from streaming.wire.topics import Topics

if TYPE_CHECKING:
    from confluent_kafka import Message

    from streaming.kafka.latest_rows import LatestRows
    from streaming.wire.service_maintenance import ProgramRow, TaskRow

_log = logging.getLogger(__name__)


def maintenance(
    watches: Annotated[
        bool, option("--watch", "Then show each run that did something or failed, until Ctrl-C.")
    ] = False,
    as_json: Json = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    topic_prefix: TopicPrefix = "",
    kafka_config: KafkaConfig = None,
) -> None:
    """Show the periodic tasks of the transports that run: when each was last done, and what it has done.

    A task is done on every notification, on every 2nd or on every 5th, as "every" says. Notifications come every 5 s.
    """
    from streaming.kafka.topic_follower import Start, TopicFollower

    latest = _latest()
    kafka, topic = cluster(bootstrap_servers, kafka_config), Topics(topic_prefix).service_maintenance
    with TopicFollower(kafka, [topic], Start.BEGINNING) as follower:
        for message in follower.to_end():
            latest.take(message)
        _print([_task_fields(row, task) for row in _programs(latest) for task in row.tasks], as_json)
        if not watches:
            return
        runs = {(row.instance, task.name): task.runs for row in latest.rows.values() for task in row.tasks}
        for message in follower.forever():
            row = latest.rows.get(latest.take(message) or "")
            if row is None:
                continue
            for task in row.tasks:
                has_run = runs.get((row.instance, task.name)) != task.runs
                runs[row.instance, task.name] = task.runs
                if has_run and (task.last_done or task.last_error):
                    _print_run(row, task, as_json)


def connections(
    as_json: Json = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    topic_prefix: TopicPrefix = "",
    kafka_config: KafkaConfig = None,
) -> None:
    """Show the connections of the transports that run to other instances, as sys.dm_broker_connections did.

    A destination is left alone for 15 s after a disconnection and for 60 s after an attempt that has failed:
    "suppressed until". Messages wait meanwhile: `queue-activation transmissions`.
    """
    from streaming.kafka.topic_follower import Start, TopicFollower

    latest = _latest()
    kafka, topic = cluster(bootstrap_servers, kafka_config), Topics(topic_prefix).service_maintenance
    with TopicFollower(kafka, [topic], Start.BEGINNING) as follower:
        for message in follower.to_end():
            latest.take(message)
    _print(
        [
            {**msgspec.to_builtins(connection), "instance": row.instance, "update_time": row.update_time}
            for row in _programs(latest)
            for connection in sorted(row.connections, key=lambda each: each.address)
        ],
        as_json,
    )


def _latest() -> "LatestRows[ProgramRow]":
    from streaming.kafka.latest_rows import LatestRows
    from streaming.wire.service_maintenance import decode_program

    def decode(message: "Message") -> "tuple[str, ProgramRow | None]":
        key, value = (message.key() or b"").decode(errors="replace"), message.value()
        return key, None if value is None else decode_program(value)

    return LatestRows("record of periodic tasks", decode, lambda line: _log.warning("%s", line))


def _programs(latest: "LatestRows[ProgramRow]") -> "Iterable[ProgramRow]":
    return (row for _, row in sorted(latest.rows.items()))


def _task_fields(row: "ProgramRow", task: "TaskRow") -> dict[str, Any]:
    fields = {"program": row.program, **msgspec.to_builtins(task)}
    return {**fields, "instance": row.instance, "update_time": row.update_time}


def _print(rows: list[dict[str, Any]], as_json: bool) -> None:
    from streaming.cli import tables
    from streaming.cli.conversations.showing import instant
    from streaming.cli.routing.databases import table_of

    times = ("last_run", "since", "suppressed_until", "update_time")
    shown = [
        {name: instant(value) if name in times else value for name, value in row.items() if name != "purpose"}
        for row in rows
    ]
    tables.print_rows(rows if as_json else shown, table_of, "none: no transport has one", as_json)


def _print_run(row: "ProgramRow", task: "TaskRow", as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(_task_fields(row, task)))
        return
    what = f"has failed: {task.last_error}" if task.failures and not task.last_done else f"did {task.last_done:,}"
    typer.echo(f"{(task.last_run or '-')[11:19]}  {row.program} {row.instance}  {task.name} {what}")


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    app.command()(maintenance)
    app.command()(connections)
