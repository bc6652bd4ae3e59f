"""Says whether the programs run on which the views depend, and how old the views are.

Each program is a member of a consumer group. Monitor and router leave a sign of life after each batch that they have
committed.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from streaming.cli.lines import say
from streaming.daemons.monitor import sole_monitor
from streaming.daemons.observer import sole_observer
from streaming.daemons.router import sole_router
from streaming.daemons.transport import transport
from streaming.kafka.access import AccessDeniedError
from streaming.kafka.admin import ADMIN_TIMEOUT_S, Admin
from streaming.kafka.clients import Cluster
from streaming.system import hints, wall_clock
from streaming.system.ages import age, as_of
from streaming.wire.decoding import InvalidRecordError
from streaming.wire.signs_of_life import SignOfLife, decode_sign
from streaming.wire.topics import Topics

# Program -> its consumer group without the topic prefix, and what nobody does if no such program runs.
PROGRAMS = {
    "monitor": (sole_monitor.GROUP_ID, "no reader is started for the messages that arrive"),
    "router": (sole_router.GROUP_ID, "no message of a service is delivered"),
    "transport": (transport.GROUP_ID, "the router's decisions are not carried out"),
    "observer": (sole_observer.GROUP_ID, "no reader is started for the consumer groups that it watches"),
}
# The command of a program that is not its name alone.
_COMMANDS = {"observer": ("observe", "--config", "FILE")}

_NO_SIGN = {
    "monitor": (
        "no monitor has left a sign of life: none has committed a batch, that was longer ago than Kafka keeps the "
        "offsets of consumer groups (7 days by default), or the monitor is older than 0.3.0"
    ),
    "router": "no router has left a sign of life: none has committed a batch, or Kafka is older than version 3.0",
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
        f"no {program} is in the consumer group {topics.prefix}{group_id}, so {consequence}{which}. Start one: "
        f"`{hints.command(*_COMMANDS.get(program, (program,)))}`"
    )


def warn_of_absence(kafka: Cluster, topics: Topics, program: str, consequence: str = "") -> bool:
    """Says on the standard error that a program does not run, or that this is not known; returns whether it may run."""
    with _told_if_denied(f"whether a {program} runs"):
        if (sentence := absence(kafka, topics, program)) is not None:
            say(f"{sentence}.{consequence}", err=True)
            return False
    return True


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
    may_run = warn_of_absence(kafka, topics, program, without)
    with _told_if_denied(_last_batch(program)):
        sign, now_ms = last_sign(kafka, topics, program), wall_clock.now_ms()
        if may_run and (late := lateness(program, sign, now_ms)) is not None:
            say(f"{late}.", err=True)
        elif sign is None:
            say(f"{_last_batch(program)} is unknown: {_NO_SIGN[program]}.", err=True)
        if sign is not None and not as_json:
            typer.echo(as_of(sign.committed_ms, now_ms))
    return may_run


def say_age(kafka: Cluster, topics: Topics, program: str) -> None:
    """Says how old the view is that a program writes, or that this is not known; nothing if it left no sign of life."""
    with _told_if_denied(_last_batch(program)):
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


def _last_batch(program: str) -> str:
    return f"when a {program} last committed a batch"


@contextmanager
def _told_if_denied(what: str) -> Iterator[None]:
    try:
        yield
    except AccessDeniedError as error:
        say(f"{what} is unknown: {error}", err=True)
