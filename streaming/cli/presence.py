"""Says whether the programs run on which the views depend, and how old the views are.

Each program is a member of a consumer group. A monitor writes a tick and a router its progress at least every 10 s.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from streaming.cli.lines import say
from streaming.daemons.monitor import sole_monitor
from streaming.daemons.router import sole_router
from streaming.daemons.transport import transport
from streaming.kafka.access import AccessDeniedError
from streaming.kafka.admin import ADMIN_TIMEOUT_S, Admin
from streaming.kafka.clients import Cluster
from streaming.system.ages import age, as_of
from streaming.wire.topics import Topics

# Program -> its consumer group without the topic prefix, and what nobody does if no such program runs.
PROGRAMS = {
    "router": (sole_router.GROUP_ID, "no message of a service is delivered"),
    "transport": (transport.GROUP_ID, "the router's decisions are not carried out"),
    "monitor": (sole_monitor.GROUP_ID, "no reader is started for the messages that arrive"),
}

# After three signs of life that have not come.
_LATE_MS = 30_000


def is_running(kafka: Cluster, topics: Topics, program: str) -> bool:
    """Returns whether a program runs. One that was killed counts as running until its session ends, after 10 s.

    Raises:
        AccessDeniedError: This user may not look at the program's consumer group.
        UserError: Kafka cannot be reached, or refuses.
    """
    group_id, _ = PROGRAMS[program]
    return bool(Admin(kafka).members(topics.prefix + group_id, ADMIN_TIMEOUT_S))


def absence(kafka: Cluster, topics: Topics, program: str) -> str | None:
    """Returns the sentence about a program that does not run, and what to do; None if it runs.

    Raises as `is_running` does.
    """
    if is_running(kafka, topics, program):
        return None
    group_id, consequence = PROGRAMS[program]
    return (
        f"no {program} is in the consumer group {topics.prefix}{group_id}, so {consequence}. Start one: "
        f"`queue-activation {program}`"
    )


def warn_of_absence(kafka: Cluster, topics: Topics, program: str, consequence: str = "") -> bool:
    """Says on the standard error that a program does not run, or that this is not known; returns whether it may run."""
    with _told_if_denied(f"whether a {program} runs"):
        if (sentence := absence(kafka, topics, program)) is not None:
            say(f"{sentence}.{consequence}", err=True)
            return False
    return True


def introduce(kafka: Cluster, topics: Topics, program: str, *, as_json: bool) -> None:
    """Says how old a view is, before it: as a line of it, and first, on the standard error, if it may be too old.

    Args:
        kafka: The cluster.
        topics: The topics.
        program: The program that writes the view: `monitor` or `router`.
        as_json: Whether the view is for programs. Its rows have times of their own.
    """
    may_run = warn_of_absence(kafka, topics, program, " What follows is what the last one has written.")
    with _told_if_denied("how old this is"):
        seen_ms, now_ms = last_sign_ms(kafka, topics, program), _now_ms()
        if seen_ms is not None and may_run and (late := lateness(program, seen_ms, now_ms)) is not None:
            say(f"{late}.", err=True)
        if seen_ms is not None and not as_json:
            typer.echo(as_of(seen_ms, now_ms))


def say_age(kafka: Cluster, topics: Topics, program: str) -> None:
    """Says how old the view is that a program writes, or that this is not known; nothing if it never ran."""
    with _told_if_denied("how old this is"):
        if (seen_ms := last_sign_ms(kafka, topics, program)) is not None:
            typer.echo(as_of(seen_ms, _now_ms()))


def last_sign_ms(kafka: Cluster, topics: Topics, program: str) -> int | None:
    """Returns when a monitor or a router last wrote that it gets on; None: it never has, or Kafka is too old to tell.

    Raises:
        AccessDeniedError: This user may not look at the program's topic.
        UserError: Kafka cannot be reached, or refuses.
    """
    return Admin(kafka).newest_ms({"monitor": topics.ticks, "router": topics.service_progress}[program])


def lateness(program: str, seen_ms: int, now_ms: int) -> str | None:
    """Returns the sentence about a program whose last sign of life is older than it may be; None: it is not."""
    if now_ms - seen_ms <= _LATE_MS:
        return None
    or_longer = " (or every --check-interval, if that is longer)" if program == "monitor" else ""
    return (
        f"the {program}'s last sign of life is {age(seen_ms, now_ms)} old, and there should be one every 10 s"
        f"{or_longer}. Unless it was just started, look at the end of its log"
    )


@contextmanager
def _told_if_denied(what: str) -> Iterator[None]:
    try:
        yield
    except AccessDeniedError as error:
        say(f"{what} is unknown: {error}", err=True)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
