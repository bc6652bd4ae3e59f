"""Finds out which programs of this project run, and returns advice on how to start other programs.

Each program is a member of a consumer group.
"""

from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import structs

from streaming.errors import UserError
from streaming.kafka.admin import ADMIN_TIMEOUT_S, Admin, GroupMember
from streaming.kafka.clients import Cluster
from streaming.system import hints, runs
from streaming.system.client_ids import has_ended, process_of
from streaming.system.threads import started
from streaming.wire.own_groups import own_group
from streaming.wire.topics import Topics

# Program -> its consumer group without the topic prefix, and the consequence if the program does not run.
PROGRAMS = {
    "monitor": (own_group("monitor"), "no reader is started for the messages that arrive"),
    "router": (own_group("router"), "no message of a service is delivered"),
    "transport": (own_group("transport"), "the router's decisions are not carried out"),
    "observer": (own_group("observer"), "no reader is started for the consumer groups that it watches"),
    "activator": (own_group("activator"), "no program is started for the notifications"),
    "host": (own_group("host"), "unless one with another --group-id runs, no task of internal activation is run"),
}
# Program that needs a file -> its command.
_WITH_FILE = {"observer": "observe", "activator": "activator", "host": "host"}
_OF_FILE, _OF_SERVICES = ("monitor", "observer", "activator"), ("monitor", "router", "transport")
# The programs that `run` runs in its own process.
_OF_PROCESS = ("monitor", "router")


def is_running(kafka: Cluster, topics: Topics, program: str) -> bool:
    """Returns whether a program runs.

    A killed program counts as running until its session ends, after 10 s. A program of a killed `run` on this machine
    does not.

    Raises:
        AccessDeniedError: This user has no right to see the program's consumer group.
        UserError: Kafka cannot be reached, or refuses.
    """
    return bool(members(kafka, topics, program))


def is_ready(kafka: Cluster, topics: Topics, program: str) -> bool:
    """Returns whether a program runs, and no `run` is still starting it. The errors are those of `is_running`.

    A program becomes a member of its group before it does its work.
    """
    return is_running(kafka, topics, program) and not starting(kafka, topics, program)


def members(kafka: Cluster, topics: Topics, program: str) -> list[GroupMember]:
    """Returns the members of a program's consumer group that run. The rules and errors are those of `is_running`."""
    group_id, _ = PROGRAMS[program]
    found = Admin(kafka).members(topics.prefix + group_id, ADMIN_TIMEOUT_S)
    run = runs.last(kafka.bootstrap_servers, topics.prefix) if found else None
    if run is not None and run.was_killed:
        return [each for each in found if not run.is_process_of(each.client_id)]
    return found


def absence(  # noqa: PLR0913  (the program, and what is known of its surroundings)
    kafka: Cluster,
    topics: Topics,
    program: str,
    which: str = "",
    file: str | None = None,
    *,
    has_services: bool = False,
) -> str | None:
    """Returns the sentence about a program that does not run, with advice; None if it runs.

    Args:
        kafka: The cluster.
        topics: The topics.
        program: The program.
        which: The words that limit the sentence's consequence to a part of the work; empty: no limit.
        file: The activator's file, if it is known.
        has_services: Whether services are defined, so that the programs of services are needed too.

    The errors are those of `is_running`.
    """
    if is_running(kafka, topics, program):
        return None
    group_id, consequence = PROGRAMS[program]
    sentence = f"no {program} is in the consumer group {topics.prefix}{group_id}, so {consequence}{which}"
    return with_advice(sentence, how_to_start(kafka, topics, program, file, has_services=has_services))


def with_advice(sentence: str, advice: str) -> str:
    """Returns a sentence, followed by the advice if there is any. Both arguments lack their last period."""
    return f"{sentence}. {advice}" if advice else sentence


def how_to_start(
    kafka: Cluster, topics: Topics, program: str, file: str | None = None, *, has_services: bool = False
) -> str:
    """Returns the advice on how to start a program that does not run, alone or with the programs that belong to it.

    `run` fails if one of its programs runs or is being started, so the advice names `run` only otherwise.

    Args:
        kafka: The cluster.
        topics: The topics.
        program: The program.
        file: The file of the program, if it is known.
        has_services: Whether services are defined, so that the programs of services are needed too.

    Returns:
        A sentence without its period; empty if the command that runs has given this advice before.
    """
    run = runs.last(kafka.bootstrap_servers, topics.prefix)
    if run is not None and run.is_running and program in run.programs:
        return _once(run.doing(), run.doing())
    others = _together_with(program)
    asked = {other: started(partial(_is_in_the_way, kafka, topics, run, other)) for other in others}
    in_the_way = {other for other, each in asked.items() if each.result()}
    if run is not None and in_the_way and program in run.programs and in_the_way.isdisjoint(run.programs):
        return _again(run, needs_file=False, needs_services=False)  # such a `run` starts none of them
    is_second = run is not None and run.is_running and not set(others).isdisjoint(run.programs)
    is_alone = not others or is_second or bool(in_the_way)
    if file is None and program in _OF_FILE:
        file = _last_file(kafka, topics, run)
    is_of_file = run is not None and file in (None, run.file)  # otherwise it was for another file
    if run is not None and (is_of_file or (has_services and run.file is None)):
        if file is not None and not is_of_file and program in _OF_FILE and Path(file).exists():
            run = structs.replace(run, file=file)
        file = run.shown_file() if is_of_file else file
        if not is_alone:
            is_of_services = has_services or program not in _OF_FILE
            return _again(run, needs_file=program not in _OF_SERVICES, needs_services=is_of_services)
    alone = command(program, file if file and program in _OF_FILE else "FILE")
    if is_alone:
        return _once(alone, f"Start one: `{alone}`")
    files = [file or "FILE"] if program in _OF_FILE else []
    what = "all that the activator's FILE needs" if files else "all that services need"
    what += " (without FILE: that services need)" if program == "monitor" and not file else ""
    together = hints.command("run", *files)
    return _once(together, f"Start {what}: `{together}`, or {a_program(program)} alone: `{alone}`")


def _last_file(kafka: Cluster, topics: Topics, run: runs.Run | None) -> str | None:
    """Returns the file of the activator that was started last, with the last `run` or alone; None if it is not known.

    Returns the word for a file if the activator was started alone, and its file is gone.
    """
    file = runs.last_file(kafka.bootstrap_servers, topics.prefix)
    is_alone = file is not None and (run is None or file != run.file)
    return "FILE" if is_alone and not Path(str(file)).exists() else file


def _again(run: runs.Run, *, needs_file: bool, needs_services: bool) -> str:
    """Returns the sentence with the command that starts a `run` again, with the file and the programs needed now."""
    again = run.line(run.words(needs_file=needs_file, needs_services=needs_services))
    is_same = again == run.line(run.words(needs_file=False, needs_services=False))
    said = _once(again, f"Start {'all again' if is_same else 'all that is needed'}: `{again}`")
    # A user who starts the programs of services too does not need the command without them.
    hints.is_new(run.line(run.words(needs_file=needs_file, needs_services=False)))
    return said


def _together_with(program: str) -> list[str]:
    """Returns the programs that `run` starts together with a program."""
    return [each for run in (_OF_FILE, _OF_SERVICES) if program in run for each in run if each != program]


def _once(advice: str, sentence: str) -> str:
    return sentence if hints.is_new(advice) else ""


def command(program: str, file: str = "FILE") -> str:
    """Returns the command line that starts a program alone."""
    words = [_WITH_FILE[program], "--config", file] if program in _WITH_FILE else [program]
    return hints.command(*words)


def may_run(kafka: Cluster, topics: Topics, program: str) -> bool:
    """Returns whether a program runs. If that is unknown, returns whether the program is the monitor."""
    try:
        return is_running(kafka, topics, program)
    except UserError:
        return program == "monitor"  # most users have the right to see the monitor's group, and no other group


def _is_in_the_way(kafka: Cluster, topics: Topics, run: runs.Run | None, program: str) -> bool:
    """Returns whether a program runs beside which a new `run` would fail.

    After a `run` was killed, its other processes are about to end. Only a program whose member names a process is
    certain to run.
    """
    if run is None or not run.was_killed:
        return may_run(kafka, topics, program)
    try:
        found = members(kafka, topics, program)
    except UserError:
        return program == "monitor"  # see `may_run`
    if program in _OF_PROCESS:
        return not all(has_ended(each.client_id) for each in found)
    return any(process_of(each.client_id) and not has_ended(each.client_id) for each in found)


def starting(kafka: Cluster, topics: Topics, program: str, committed_ms: int = 0) -> str:
    """Returns the sentence, without its period, that a `run` is about to start a program; empty if no `run` is.

    While a `run` is about to take the place of a monitor or a router, that program runs. So the sentence is empty.

    Args:
        kafka: The cluster.
        topics: The topics.
        program: The program.
        committed_ms: When such a program last committed a batch, if that is known. A program that has committed a batch
            since the `run` was started is not about to start.
    """
    run = runs.last(kafka.bootstrap_servers, topics.prefix)
    if run is None or program not in run.unready or committed_ms >= run.started_ms:
        return ""
    return "" if program in _OF_PROCESS and _is_beside(kafka, topics, program, run) else run.doing()


def _is_beside(kafka: Cluster, topics: Topics, program: str, run: runs.Run) -> bool:
    """Returns whether a program outside the process of a `run` runs, as far as this is known."""
    with suppress(UserError):
        found = [each.client_id for each in members(kafka, topics, program)]
        return any(not run.is_process_of(each) and not has_ended(each) for each in found)
    return False


def a_program(program: str) -> str:
    """Returns a program's name with its article."""
    return f"{'an' if program[0] in 'ao' else 'a'} {program}"
