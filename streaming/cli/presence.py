"""Says whether the programs run on which the views depend, and how old the views are.

Each program is a member of a consumer group. Monitor and router leave a sign of life after each batch that they have
committed.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from streaming.cli import monitor_rows, runs
from streaming.cli.lines import say
from streaming.cli.present import NOBODY_MISSING, Present
from streaming.core.maintenance.schedule import DEFAULT_INTERVAL_MS
from streaming.daemons.activator.settings import DEFAULT_GROUP_ID
from streaming.daemons.host import config as host
from streaming.daemons.monitor import sole_monitor
from streaming.daemons.observer import sole_observer
from streaming.daemons.router import sole_router
from streaming.daemons.transport import transport
from streaming.errors import UserError
from streaming.kafka.access import AccessDeniedError
from streaming.kafka.admin import ADMIN_TIMEOUT_S, Admin, GroupMember
from streaming.kafka.clients import Cluster
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system import hints, wall_clock
from streaming.system.ages import age, as_of
from streaming.system.threads import started
from streaming.wire.decoding import InvalidRecordError
from streaming.wire.service_maintenance import decode_program
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
# Those that `run` runs in its own process.
_OF_PROCESS = ("monitor", "router")

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
# A program is late after this many signs of life that have not come, and does not run after this many records.
_SIGNS_MISSED = _RECORDS_MISSED = 3
# The beginning of the keys of hosts in service-maintenance.
_HOSTS = b"host/"


def is_running(kafka: Cluster, topics: Topics, program: str) -> bool:
    """Returns whether a program runs.

    One that was killed counts as running until its session ends, after 10 s, unless it was a part of a `run` of this
    machine.

    Raises:
        AccessDeniedError: This user may not look at the program's consumer group.
        UserError: Kafka cannot be reached, or refuses.
    """
    return bool(members(kafka, topics, program))


def members(kafka: Cluster, topics: Topics, program: str) -> list[GroupMember]:
    """Returns the members of a program's consumer group that run, as `is_running` sees them; raises as it does."""
    group_id, _ = PROGRAMS[program]
    found = Admin(kafka).members(topics.prefix + group_id, ADMIN_TIMEOUT_S)
    run = runs.last(kafka.bootstrap_servers, topics.prefix) if found else None
    if run is not None and run.was_killed:
        return [each for each in found if not run.is_process_of(each.client_id)]
    return found


def absence(kafka: Cluster, topics: Topics, program: str, which: str = "", file: str | None = None) -> str | None:
    """Returns the sentence about a program that does not run, and what to do; None if it runs.

    Args:
        kafka: The cluster.
        topics: The topics.
        program: The program.
        which: What the consequence is about, if not everything.
        file: The activator's file, if it is known.

    Raises as `is_running` does.
    """
    if is_running(kafka, topics, program):
        return None
    group_id, consequence = PROGRAMS[program]
    sentence = f"no {program} is in the consumer group {topics.prefix}{group_id}, so {consequence}{which}"
    return with_advice(sentence, how_to_start(kafka, topics, program, file))


def with_advice(sentence: str, advice: str) -> str:
    """Returns a sentence with what to do after it, if there is anything; both are without their last period."""
    return f"{sentence}. {advice}" if advice else sentence


def how_to_start(kafka: Cluster, topics: Topics, program: str, file: str | None = None) -> str:
    """Returns what to do to start a program that does not run, with all that belongs to it or alone.

    `run` needs the places of all its programs, so it is named only if none of them runs. A program that was started
    alone is in the way of a later `run`. Other programs of a `run` that was killed are about to end.

    Args:
        kafka: The cluster.
        topics: The topics.
        program: The program.
        file: Its file, if it is known.

    Returns:
        A sentence without its period; empty if the command that runs has given this advice before.
    """
    run = runs.last(kafka.bootstrap_servers, topics.prefix)
    if run is not None and run.is_running and program in run.programs:
        return _once(run.doing(), run.doing())
    others = [each for each in _together_with(program) if run is None or not run.was_killed or each in _OF_PROCESS]
    asked = [started(partial(may_run, kafka, topics, other)) for other in others]
    is_alone = not _together_with(program) or any(each.result() for each in asked)
    if run is not None and file in (None, run.file):  # otherwise it was for another file
        file = run.shown_file()
        if not is_alone:
            words = run.words(needs_file=program not in _OF_SERVICES, needs_services=program not in _OF_FILE)
            again = run.line(words)
            return _once(again, f"Start {'all again' if program in run.programs else 'all that is needed'}: `{again}`")
    alone = command(program, file if file and program in _OF_FILE else "FILE")
    if is_alone:
        return _once(alone, f"Start one: `{alone}`")
    files = [file or "FILE"] if program in _OF_FILE else []
    what = "all that the activator's FILE needs" if files else "all that services need"
    what += " (without FILE: that services need)" if program == "monitor" else ""
    together = hints.command("run", *files)
    return _once(together, f"Start {what}: `{together}`, or {_a(program)} alone: `{alone}`")


def _together_with(program: str) -> list[str]:
    """Returns the other programs of the commands `run` that start a program."""
    return [each for run in (_OF_FILE, _OF_SERVICES) if program in run for each in run if each != program]


def _once(advice: str, sentence: str) -> str:
    return sentence if hints.is_new(advice) else ""


def command(program: str, file: str = "FILE") -> str:
    """Returns the command line that starts a program alone."""
    return hints.command(*(file if word == "FILE" else word for word in _COMMANDS.get(program, (program,))))


def may_run(kafka: Cluster, topics: Topics, program: str) -> bool:
    """Returns whether a program may run: it does, or it is the monitor, and this user may not look."""
    try:
        return is_running(kafka, topics, program)
    except UserError:
        return program == "monitor"  # most users may look at its group alone


def warn_of_absence(
    kafka: Cluster, topics: Topics, program: str, consequence: str = "", file: str | None = None
) -> bool | None:
    """Says on the standard error that a program does not run, or that this is not known.

    Returns whether it runs; None if that is not known.

    Args:
        kafka: The cluster.
        topics: The topics.
        program: The program.
        consequence: What is said after it.
        file: The activator's file, if it is known.
    """
    is_there: bool | None = None
    with told_if_denied(f"whether {_a(program)} runs"):
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
    file: str | None = None,
    *,
    has_tasks: bool = False,
) -> Present:
    """Returns who is there of those whom rows of the monitors view need; says on the standard error who is missing.

    Args:
        kafka: The cluster.
        topics: The topics.
        rows: The rows.
        monitor: What `introduce` has found.
        file: The activator's file, if it is known.
        has_tasks: Whether the view shows tasks, and so also which of several hosts are stopping.
    """
    needed = {
        "host": any(map(monitor_rows.needs_host, rows)),
        "observer": any(map(monitor_rows.observed, rows)),
    }
    host, observer = (
        warn_of_absence(kafka, topics, each, file=file) if is_needed else None for each, is_needed in needed.items()
    )
    is_asked = needed["host"] and (host is False or has_tasks)
    stopping = stopping_hosts(kafka, topics) if is_asked else frozenset()
    if sentence := are_stopping(stopping):
        say(f"{sentence}.", err=True)
    return replace(monitor, host=host, observer=observer, stopping=stopping)


def stopping_hosts(kafka: Cluster, topics: Topics) -> frozenset[str]:
    """Returns the names of the hosts that are stopping, as far as they may write a record of their own.

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
    """Returns the sentence about hosts that are stopping; empty if none is."""
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
) -> Present:
    """Says how old a view is, before it: as a line of it, and first, on the standard error, if it may be too old.

    Returns whether the program keeps it up to date.

    Args:
        kafka: The cluster.
        topics: The topics.
        program: The program that writes the view: `monitor` or `router`.
        as_json: Whether the view is for programs. Its rows have times of their own.
        without: What follows if no such program runs; None: what the last one has written, if there was one.
        file: The activator's file, if it is known.
    """
    present, begins = NOBODY_MISSING, starting(kafka, topics, program)
    sign, denied = _sign_or_denial(kafka, topics, program)
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
    if sign is None:
        return present
    if not as_json:
        say(as_of(sign.committed_ms, now_ms))
    if late is not None:
        present = Present(monitor=False, gone=f"The {program} gives no sign of life")
    return replace(present, as_of_ms=sign.committed_ms)


def _problem_of(
    program: str, sign: SignOfLife | None, denied: AccessDeniedError | None, late: str | None, begins: str
) -> str:
    """Returns what there is to say of a program's last batch besides its age; empty if there is nothing."""
    if denied is not None:
        return f"{_last_batch(program)} is unknown: {denied}"
    if late is not None:
        return f"{late}."
    return "" if sign or begins else f"{_last_batch(program)} is unknown, because {_NO_SIGN[program]}."


def _sign_or_denial(kafka: Cluster, topics: Topics, program: str) -> tuple[SignOfLife | None, AccessDeniedError | None]:
    """Returns the last sign of life of a program; if this user may not look at it, why."""
    try:
        return last_sign(kafka, topics, program), None
    except AccessDeniedError as error:
        return None, error


def starting(kafka: Cluster, topics: Topics, program: str) -> str:
    """Returns the sentence about a `run` that is about to start a program, without its period; empty without one."""
    run = runs.last(kafka.bootstrap_servers, topics.prefix)
    return run.doing() if run is not None and run.is_starting and program in run.programs else ""


def say_if_starting(kafka: Cluster, topics: Topics) -> None:
    """Says on the standard error that a `run` is about to start its programs, for a view that no single one writes."""
    run = runs.last(kafka.bootstrap_servers, topics.prefix)
    if run is not None and run.is_starting:
        say(f"{run.doing()}.", err=True)


def say_age(kafka: Cluster, topics: Topics, program: str) -> None:
    """Says how old the view is that a program writes, or that this is not known; nothing if it left no sign of life."""
    with told_if_denied(_last_batch(program)):
        if (sign := last_sign(kafka, topics, program)) is not None:
            say(as_of(sign.committed_ms, wall_clock.now_ms()))


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


def late_after_ms(sign: SignOfLife) -> int:
    """Returns the age from which on a sign of life is too old."""
    return _SIGNS_MISSED * sign.next_within_ms


def lateness(program: str, sign: SignOfLife | None, now_ms: int) -> str | None:
    """Returns the sentence about a program that runs, if its last sign of life is missing or too old; else None.

    Args:
        program: The program.
        sign: Its last sign of life.
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
