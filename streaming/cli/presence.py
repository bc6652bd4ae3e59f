"""Says whether the programs run on which the views depend, and how old the views are.

Each program is a member of a consumer group. Monitor and router leave a sign of life after each batch that they have
committed.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import typer

from streaming.cli import task_failures
from streaming.cli.lines import say
from streaming.cli.present import Present
from streaming.daemons.activator.settings import DEFAULT_GROUP_ID
from streaming.daemons.host import config as host
from streaming.daemons.monitor import sole_monitor
from streaming.daemons.observer import sole_observer
from streaming.daemons.router import sole_router
from streaming.daemons.transport import transport
from streaming.errors import UserError
from streaming.kafka.access import AccessDeniedError
from streaming.kafka.admin import ADMIN_TIMEOUT_S, Admin
from streaming.kafka.clients import Cluster
from streaming.system import hints, wall_clock
from streaming.system.ages import age, as_of
from streaming.system.threads import started
from streaming.wire.decoding import InvalidRecordError
from streaming.wire.signs_of_life import SignOfLife, decode_sign
from streaming.wire.topics import Topics

# Program -> its consumer group without the topic prefix, and what nobody does if no such program runs.
PROGRAMS = {
    "monitor": (sole_monitor.GROUP_ID, "no reader is started for the messages that arrive"),
    "router": (sole_router.GROUP_ID, "no message of a service is delivered"),
    "transport": (transport.GROUP_ID, "the router's decisions are not carried out"),
    "observer": (sole_observer.GROUP_ID, "no reader is started for the consumer groups that it watches"),
    "activator": (DEFAULT_GROUP_ID, "no program is started for the notifications"),
    "host": (host.GROUP_ID, "unless one with another --group-id runs, no task of internal activation is run"),
}
# The command of a program that is not its name alone.
_COMMANDS = {
    "observer": ("observe", "--config", "FILE"),
    "activator": ("activator", "--config", "FILE"),
    "host": ("host", "--config", "FILE"),
}
_OF_FILE, _OF_SERVICES = ("monitor", "observer", "activator"), ("monitor", "router", "transport")

_NO_SIGN = {
    "monitor": (
        "no monitor has left a sign of life, as is normal before the first one has run for a few seconds. Otherwise it "
        "ran longer ago than Kafka keeps the offsets of consumer groups (7 days by default), or is older than 0.3.0"
    ),
    "router": (
        "no router has left a sign of life, as is normal before the first one has run for a few seconds. Otherwise "
        "Kafka is older than version 3.0"
    ),
}
# The router commits a batch at least this often.
_ROUTERS_PAUSE_MS = 10_000
# A program is late after this many signs of life that have not come.
_SIGNS_MISSED = 3


def is_running(kafka: Cluster, topics: Topics, program: str) -> bool:
    """Returns whether a program runs. One that was killed counts as running until its session ends, after 10 s.

    Raises:
        AccessDeniedError: This user may not look at the program's consumer group.
        UserError: Kafka cannot be reached, or refuses.
    """
    group_id, _ = PROGRAMS[program]
    return bool(Admin(kafka).members(topics.prefix + group_id, ADMIN_TIMEOUT_S))


def absence(kafka: Cluster, topics: Topics, program: str, which: str = "") -> str | None:
    """Returns the sentence about a program that does not run, and what to do; None if it runs.

    Args:
        kafka: The cluster.
        topics: The topics.
        program: The program.
        which: What the consequence is about, if not everything.

    Raises as `is_running` does.
    """
    if is_running(kafka, topics, program):
        return None
    group_id, consequence = PROGRAMS[program]
    return (
        f"no {program} is in the consumer group {topics.prefix}{group_id}, so {consequence}{which}. "
        f"{how_to_start(kafka, topics, program)}"
    )


def how_to_start(kafka: Cluster, topics: Topics, program: str, file: str = "FILE") -> str:
    """Returns what to do to start a program that does not run, with all that belongs to it or alone.

    `run` needs the places of all its programs, so it is named only if none of them runs. A program that was started
    alone is in the way of a later `run`.

    Args:
        kafka: The cluster.
        topics: The topics.
        program: The program.
        file: Its file, if it is known.
    """
    alone = command(program, file)
    others = [each for run in (_OF_FILE, _OF_SERVICES) if program in run for each in run if each != program]
    asked = [started(partial(may_run, kafka, topics, other)) for other in others]
    if not others or any(each.result() for each in asked):
        return f"Start one: `{alone}`"
    files = [file] if program in _OF_FILE else []
    what = "all that the activator's FILE needs" if files else "all that services need"
    what += " (without FILE: that services need)" if program == "monitor" else ""
    return f"Start {what}: `{hints.command('run', *files)}`, or {_a(program)} alone: `{alone}`"


def command(program: str, file: str = "FILE") -> str:
    """Returns the command line that starts a program alone."""
    return hints.command(*(file if word == "FILE" else word for word in _COMMANDS.get(program, (program,))))


def may_run(kafka: Cluster, topics: Topics, program: str) -> bool:
    """Returns whether a program may run: it does, or it is the monitor, and this user may not look."""
    try:
        return is_running(kafka, topics, program)
    except UserError:
        return program == "monitor"  # most users may look at its group alone


def warn_of_absence(kafka: Cluster, topics: Topics, program: str, consequence: str = "") -> bool | None:
    """Says on the standard error that a program does not run, or that this is not known.

    Returns whether it runs; None if that is not known.
    """
    runs: bool | None = None
    with told_if_denied(f"whether {_a(program)} runs"):
        sentence = absence(kafka, topics, program)
        runs = sentence is None
        if sentence is not None:
            say(f"{sentence}.{consequence}", err=True)
    return runs


def look(kafka: Cluster, topics: Topics, rows: Collection[Mapping[str, Any]], *, monitor: bool) -> Present:
    """Returns who is there of those whom rows of the monitors view need; says on the standard error who is missing.

    Args:
        kafka: The cluster.
        topics: The topics.
        rows: The rows.
        monitor: Whether a monitor may run.
    """
    needed = {
        "host": any(map(task_failures.needs_host, rows)),
        "observer": any(row.get("members") is not None for row in rows),
    }
    host, observer = (warn_of_absence(kafka, topics, each) if is_needed else None for each, is_needed in needed.items())
    return Present(monitor, host, observer)


def introduce(
    kafka: Cluster,
    topics: Topics,
    program: str,
    *,
    as_json: bool,
    without: str = " What follows is what the last one has written.",
) -> bool:
    """Says how old a view is, before it: as a line of it, and first, on the standard error, if it may be too old.

    Returns whether the program may run.

    Args:
        kafka: The cluster.
        topics: The topics.
        program: The program that writes the view: `monitor` or `router`.
        as_json: Whether the view is for programs. Its rows have times of their own.
        without: What follows if no such program runs.
    """
    may_run = warn_of_absence(kafka, topics, program, without) is not False
    with told_if_denied(_last_batch(program)):
        sign, now_ms = last_sign(kafka, topics, program), wall_clock.now_ms()
        if may_run and (late := lateness(program, sign, now_ms)) is not None:
            say(f"{late}.", err=True)
        elif sign is None:
            say(f"{_last_batch(program)} is unknown, because {_NO_SIGN[program]}.", err=True)
        if sign is not None and not as_json:
            typer.echo(as_of(sign.committed_ms, now_ms))
    return may_run


def say_age(kafka: Cluster, topics: Topics, program: str) -> None:
    """Says how old the view is that a program writes, or that this is not known; nothing if it left no sign of life."""
    with told_if_denied(_last_batch(program)):
        if (sign := last_sign(kafka, topics, program)) is not None:
            typer.echo(as_of(sign.committed_ms, wall_clock.now_ms()))


def last_sign(kafka: Cluster, topics: Topics, program: str) -> SignOfLife | None:
    """Returns the last sign of life of a monitor or a router; None: there is none, or Kafka keeps it no longer.

    Both leave it after they have committed a batch, so a program whose work hangs leaves none.

    Raises:
        AccessDeniedError: This user may not look at the program's topic or group.
        UserError: Kafka cannot be reached, or refuses.
    """
    admin = Admin(kafka)
    if program == "router":
        newest_ms = admin.newest_ms(topics.service_progress)
        return None if newest_ms is None else SignOfLife(newest_ms, _ROUTERS_PAUSE_MS)
    text = admin.committed_text(topics.prefix + sole_monitor.GROUP_ID, topics.ticks)
    try:
        return None if text is None else decode_sign(text)
    except InvalidRecordError:
        return None


def lateness(program: str, sign: SignOfLife | None, now_ms: int) -> str | None:
    """Returns the sentence about a program that runs, if its last sign of life is missing or too old; else None."""
    advice = "Unless it was just started, look at the end of its log"
    if sign is None:
        return f"{_NO_SIGN[program]}. {advice}"
    if now_ms - sign.committed_ms <= _SIGNS_MISSED * sign.next_within_ms:
        return None
    every = age(0, sign.next_within_ms)
    return (
        f"the {program}'s last sign of life is {age(sign.committed_ms, now_ms)} old, and there should be one every "
        f"{every}. {advice}"
    )


def _a(program: str) -> str:
    return f"{'an' if program[0] in 'ao' else 'a'} {program}"


def _last_batch(program: str) -> str:
    return f"when a {program} last committed a batch"


@contextmanager
def told_if_denied(what: str) -> Iterator[None]:
    """Says on the standard error that something is not known, if the block is not allowed to look."""
    try:
        yield
    except AccessDeniedError as error:
        say(f"{what} is unknown: {error}", err=True)
