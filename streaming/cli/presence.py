"""Says whether the programs behind a view run, and how old the view is.

Monitor and router leave a sign of life after each batch that they have committed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from streaming.cli import monitor_rows
from streaming.cli.lines import say
from streaming.cli.present import NOBODY_MISSING, Present
from streaming.core.maintenance.schedule import DEFAULT_INTERVAL_MS
from streaming.core.times import iso_ms
from streaming.daemons.monitor import sole_monitor
from streaming.errors import UserError
from streaming.kafka.access import AccessDeniedError
from streaming.kafka.admin import Admin, TooOldError
from streaming.kafka.clients import Cluster
from streaming.kafka.own_programs import ActivatorFile, a_program, absence, starting
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system import hints, runs, wall_clock
from streaming.system.ages import age, as_of
from streaming.wire.record_decoders import InvalidRecordError
from streaming.wire.service_maintenance import decode_program
from streaming.wire.signs_of_life import SignOfLife, decode_sign
from streaming.wire.topics import Topics

_NO_SIGN = {
    "monitor": (
        "no monitor has left a sign of life, as is normal before the first one has run for a few seconds. Otherwise it "
        "ran longer ago than Kafka keeps the offsets of consumer groups (7 days by default), or is older than 0.3.0"
    ),
    "router": "no router has left a sign of life, as is normal before the first one has run for a few seconds",
}
# The router commits a batch at least this often.
_ROUTERS_PAUSE_MS = 10_000
# A program is late after this many missed signs of life, and does not run after this many missed records.
_SIGNS_MISSED = _RECORDS_MISSED = 3
# The beginning of the keys of hosts in service-maintenance.
_HOSTS = b"host/"


def warn_of_absence(
    kafka: Cluster, topics: Topics, program: str, consequence: str = "", file: ActivatorFile = None
) -> bool | None:
    """Says on the standard error that a program does not run, or that this is not known.

    Returns whether the program runs; None if this is not known.

    Args:
        kafka: The cluster.
        topics: The topics.
        program: The program.
        consequence: The sentence to add, after a blank.
        file: The activator's file, if it is known.
    """
    is_there: bool | None = None
    with told_if_denied(f"whether {a_program(program)} runs"):
        sentence = absence(kafka, topics, program, file=file)
        is_there = sentence is None
        if sentence is not None:
            say(f"{sentence}.{consequence}", err=True)
    return is_there


def look(
    kafka: Cluster,
    topics: Topics,
    rows: Collection[Mapping[str, Any]],
    monitor: Present,
    file_of_observer: ActivatorFile = None,
    *,
    has_tasks: bool = False,
) -> Present:
    """Returns which of the programs that rows need are running. Names the missing programs on the standard error.

    Args:
        kafka: The cluster.
        topics: The topics.
        rows: The rows.
        monitor: Whether a monitor runs.
        file_of_observer: The activator's file that names the consumer groups, if it is known.
        has_tasks: Whether the view shows tasks, so that hosts that are stopping matter.
    """
    needed = {"host": any(map(monitor_rows.needs_host, rows)), "observer": any(map(monitor_rows.observed, rows))}
    host, observer = (
        warn_of_absence(kafka, topics, each, file=file_of_observer) if is_needed else None
        for each, is_needed in needed.items()
    )
    is_asked = needed["host"] and (host is False or has_tasks)
    stopping = stopping_hosts(kafka, topics) if is_asked else frozenset()
    if sentence := are_stopping(stopping):
        say(f"{sentence}.", err=True)
    return replace(monitor, host=host, observer=observer, stopping=stopping)


def stopping_hosts(kafka: Cluster, topics: Topics) -> frozenset[str]:
    """Returns the names of the hosts whose records say that they are stopping.

    If this user may not read the records, says so.
    """
    found: dict[bytes, bool] = {}
    since_ms = wall_clock.now_ms() - _RECORDS_MISSED * DEFAULT_INTERVAL_MS
    try:
        with TopicFollower(kafka, [topics.service_maintenance], Start.END, since_ms=since_ms) as follower:
            for message in follower.to_end():
                with suppress(InvalidRecordError):
                    value = message.value()
                    found[message.key() or b""] = value is not None and decode_program(value).is_stopping
    except UserError as error:
        say(f"whether a host is stopping is unknown: {error}", err=True)
    hosts = (key.removeprefix(_HOSTS).decode(errors="replace") for key, is_stopping in found.items() if is_stopping)
    return frozenset(hosts)


def are_stopping(hosts: Collection[str]) -> str:
    """Returns the sentence about hosts that are stopping; empty if no host is."""
    if not hosts:
        return ""
    if len(hosts) == 1:
        return f"host {min(hosts)} is stopping: its tasks may run to their end, and it takes no others"
    names = ", ".join(sorted(hosts))
    return f"hosts {names} are stopping: their tasks may run to their end, and they take no others"


def introduce(
    kafka: Cluster,
    topics: Topics,
    program: str,
    *,
    as_json: bool,
    without: str | None = None,
    file: str | None = None,
    times: Iterable[str] = (),
    needs: Collection[Mapping[str, Any]] = (),
    file_of_observer: ActivatorFile = None,
    has_tasks: bool = False,
) -> Present:
    """Says how old the view below is. First says on the standard error if the view may be too old.

    Returns which of the programs run that keep the view up to date, or that its rows need.

    Args:
        kafka: The cluster.
        topics: The topics.
        program: The program that writes the view: `monitor` or `router`.
        as_json: Whether the view is for programs. Its rows have times of their own.
        without: The sentence to add if no such program runs, after a blank; None: the usual sentence.
        file: The activator's file, if it is known.
        times: The times of the view's rows, because signs of life come less often than rows.
        needs: Rows of the monitors view, see `look`.
        file_of_observer: See `look`.
        has_tasks: See `look`.
    """
    present = NOBODY_MISSING
    sign, denied = _sign_or_denial(kafka, topics, program)
    begins = beginning(kafka, topics, program, sign)
    if without is None:
        without = " What follows is what the last one has written." if sign or denied else ""
    if warn_of_absence(kafka, topics, program, without, file) is False:
        present = Present(monitor=False)
    elif begins:
        present = Present(monitor=False, gone=f"The {program} is just starting")
        if hints.is_new(begins):
            say(f"{begins}.{without}", err=True)
    now_ms = wall_clock.now_ms()
    late = lateness(program, sign, now_ms) if present.monitor and denied is None else None
    if problem := _problem_of(program, sign, denied, late, begins):
        say(problem, err=True)
    if late is not None:
        present = Present(monitor=False, gone=f"The {program} gives no sign of life")
    present = look(kafka, topics, needs, present, file_of_observer, has_tasks=has_tasks)
    if sign is None:
        return present
    as_of_ms = max(sign.committed_ms, *(iso_ms(time) or 0 for time in times), 0)
    if not as_json:
        say(as_of(as_of_ms, now_ms))
    return replace(present, as_of_ms=as_of_ms)


def _problem_of(program: str, sign: SignOfLife | None, denied: UserError | None, late: str | None, begins: str) -> str:
    """Returns the sentence about a last batch that is late or not known; empty if there is nothing to say."""
    if denied is not None:
        return f"{_last_batch(program)} is unknown: {denied}"
    if late is not None:
        return f"{late}."
    return "" if sign or begins else f"{_last_batch(program)} is unknown, because {_NO_SIGN[program]}."


def _sign_or_denial(
    kafka: Cluster, topics: Topics, program: str
) -> tuple[SignOfLife | None, AccessDeniedError | TooOldError | None]:
    """Returns the last sign of life of a program, or the reason why it cannot be read."""
    try:
        return last_sign(kafka, topics, program), None
    except (AccessDeniedError, TooOldError) as error:
        return None, error


def say_if_starting(kafka: Cluster, topics: Topics) -> None:
    """Says on the standard error that a `run` is about to start. For views that several programs write."""
    run = runs.last(kafka.bootstrap_servers, topics.prefix)
    if run is not None and run.is_starting:
        say(f"{run.doing()}.", err=True)


def say_age(kafka: Cluster, topics: Topics, program: str) -> None:
    """Says how old a program's view is, by the program's last sign of life. Says nothing without such a sign."""
    with told_if_denied(_last_batch(program)):
        if (sign := last_sign(kafka, topics, program)) is not None:
            say(f"what the {program} has written is {as_of(sign.committed_ms, wall_clock.now_ms())}")


def last_sign(kafka: Cluster, topics: Topics, program: str) -> SignOfLife | None:
    """Returns the last sign of life of a monitor or a router; None if Kafka has none.

    The program leaves a sign after each batch that it commits. So a program that hangs leaves none.

    Raises:
        AccessDeniedError: This user may not look at the program's topic or group.
        TooOldError: Kafka is too old to tell when a router left a sign.
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


def beginning(kafka: Cluster, topics: Topics, program: str, sign: SignOfLife | None) -> str:
    """Returns the sentence, without its period, that a `run` is about to start a program; empty if no `run` is.

    A late sign of life may be that of a program whose place the `run` has taken.

    Args:
        kafka: The cluster.
        topics: The topics.
        program: The program.
        sign: The program's last sign of life.
    """
    if sign is None:
        return starting(kafka, topics, program)
    is_late = wall_clock.now_ms() - sign.committed_ms > late_after_ms(sign)
    return starting(kafka, topics, program, 0 if is_late else sign.committed_ms)


def late_after_ms(sign: SignOfLife) -> int:
    """Returns the age from which a sign of life is too old."""
    return _SIGNS_MISSED * sign.next_within_ms


def lateness(program: str, sign: SignOfLife | None, now_ms: int) -> str | None:
    """Returns the sentence about a program that runs, if its last sign of life is missing or too old; else None.

    Args:
        program: The program.
        sign: The program's last sign of life.
        now_ms: The time.
    """
    advice = "Unless it was just started, look at the end of its log"
    if sign is None:
        return f"{_NO_SIGN[program]}. {advice}"
    if now_ms - sign.committed_ms <= late_after_ms(sign):
        return None
    every = age(0, sign.next_within_ms)
    return (
        f"the {program}'s last sign of life is {age(sign.committed_ms, now_ms)} old, and there should be one every "
        f"{every}. {advice}"
    )


def _last_batch(program: str) -> str:
    return f"when a {program} last committed a batch"


@contextmanager
def told_if_denied(what: str) -> Iterator[None]:
    """Says on the standard error that `what` is unknown if, within the block, Kafka denies access or is too old."""
    try:
        yield
    except (AccessDeniedError, TooOldError) as error:
        say(f"{what} is unknown: {error}", err=True)
