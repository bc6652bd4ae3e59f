"""Finds out which programs of this project run, and returns advice on how to start other programs.

Each program is a member of a consumer group.
"""

from collections.abc import Iterable
from contextlib import suppress
from enum import Enum
from functools import partial
from pathlib import Path

from msgspec import structs

from streaming.errors import UserError
from streaming.kafka.admin import ADMIN_TIMEOUT_S, Admin, GroupMember
from streaming.kafka.clients import Cluster
from streaming.system import hints, runs
from streaming.system.client_ids import has_ended, process_of
from streaming.system.paths import shown, working_directory
from streaming.system.runs import OF_FILE, OF_SERVICES, RUN
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
# The programs that `run` runs in its own process.
_OF_PROCESS = ("monitor", "router")


class Unknown(Enum):
    """The file of an activator, if none of the known files is the right one."""

    FILE = "FILE"


# The name of an activator's file; None if the caller knows nothing of files.
ActivatorFile = str | Unknown | None


def is_running(kafka: Cluster, topics: Topics, program: str) -> bool:
    """Returns whether a program runs.

    A killed program counts as running until its session ends, after 10 s, unless it left a note on this machine (see
    `runs`).

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
    killed = [each for each in _notes(kafka, topics, program) if each.was_killed] if found else []
    return [each for each in found if not any(_was_killed(note, each.client_id) for note in killed)]


def _was_killed(note: runs.Run, client_id: str) -> bool:
    """Returns whether a member was in the killed process of a note. A new process may have its process id by now."""
    return note.is_process_of(client_id) and has_ended(client_id)


def _notes(kafka: Cluster, topics: Topics, program: str) -> list[runs.Run]:
    """Returns the notes of the last `run` and of the last start of a program alone."""
    found = (runs.last(kafka.bootstrap_servers, topics.prefix, command) for command in (RUN, program))
    return [each for each in found if each is not None]


def absence(kafka: Cluster, topics: Topics, program: str, which: str = "", file: ActivatorFile = None) -> str | None:
    """Returns the sentence about a program that does not run, with advice; None if it runs.

    Args:
        kafka: The cluster.
        topics: The topics.
        program: The program.
        which: The words that limit the sentence's consequence to a part of the work; empty: no limit.
        file: The activator's file, if it is known.

    The errors are those of `is_running`.
    """
    if is_running(kafka, topics, program):
        return None
    group_id, consequence = PROGRAMS[program]
    sentence = f"no {program} is in the consumer group {topics.prefix}{group_id}, so {consequence}{which}"
    return with_advice(sentence, how_to_start(kafka, topics, program, file))


def with_advice(sentence: str, advice: str) -> str:
    """Returns a sentence, followed by the advice if there is any. Both arguments lack their last period."""
    return f"{sentence}. {advice}" if advice else sentence


def how_to_start(kafka: Cluster, topics: Topics, program: str, file: ActivatorFile = None) -> str:
    """Returns the advice on how to start a program that does not run, together with all that is needed or alone.

    The last `run` that became ready is what the user needs, with a file or the programs of services added if this
    program needs them. `run` fails if one of its programs runs or is being started, so the program is started alone
    then. A command names a `run` once in an answer, and starts alone what else is missing: the user who follows all
    advice has all programs.

    Args:
        kafka: The cluster.
        topics: The topics.
        program: The program.
        file: The file of the program, if the cluster tells it.

    Returns:
        A sentence without its period; empty if the command that runs has given this advice before.
    """
    run = runs.advised(kafka.bootstrap_servers, topics.prefix)
    for each in _notes(kafka, topics, program):
        if program in each.programs and (each.is_starting or (each.is_running and each.command == RUN)):
            return each.doing() if hints.is_new(each.doing()) else ""
    if program in OF_FILE and (file is None or (program == "monitor" and run is not None)):
        file = _last_file(kafka, topics, run)
    file = file if program in OF_FILE else None
    if not _is_first(program, file):
        return ""
    alone = command(program, _shown(file))
    is_possible, has_others = _is_run_possible(kafka, topics, program, run)
    if not is_possible or not hints.is_new(RUN):
        return f"Start one: `{alone}`"
    if run is not None and (has_others or file in (None, run.file)):
        return _again(run, run, program)
    if run is not None and run.file is None and isinstance(file, str) and Path(file).exists():
        return _again(structs.replace(run, file=file, services=True), run, program)
    return f"{_together(program, file)}, or {a_program(program)} alone: `{alone}`"


def _together(program: str, file: ActivatorFile) -> str:
    """Returns the sentence with the command that starts a program and all that belongs to it, with a `run`."""
    files = [_shown(file)] if program in OF_FILE else []
    what = "all that the activator's FILE needs" if files else "all that services need"
    what += " (without FILE: that services need)" if program == "monitor" and file is None else ""
    _note_start([*(OF_FILE if files else ()), *(() if file else OF_SERVICES)], file)
    return f"Start {what}: `{hints.command('run', *files)}`"


def _is_run_possible(kafka: Cluster, topics: Topics, program: str, run: runs.Run | None) -> tuple[bool, bool]:
    """Returns whether a `run` that starts a program would start, as far as this is known.

    Also returns whether only the last `run` as it was would start, because other programs run that it does not start.

    Args:
        kafka: The cluster.
        topics: The topics.
        program: The program.
        run: The last `run`.
    """
    others = {each for programs in (OF_FILE, OF_SERVICES) if program in programs for each in programs}
    if not others or (run is not None and run.is_running and not others.isdisjoint(run.programs)):
        return False, False
    others |= set(() if run is None else run.programs)  # that `run` would be started again
    asked = {each: started(partial(_is_in_the_way, kafka, topics, each)) for each in others if each != program}
    in_the_way = {each for each, answer in asked.items() if answer.result()}
    has_others = bool(in_the_way)
    has_own = run is not None and program in run.programs and in_the_way.isdisjoint(run.programs)
    return has_own or not has_others, has_others


def _again(needed: runs.Run, last: runs.Run, program: str) -> str:
    """Returns the sentence with the command that starts a `run` again, with all that a program needs.

    Args:
        needed: The last `run`, with the file that is needed now.
        last: The last `run`.
        program: The program.
    """
    words, programs = needed.again(needs_file=program not in OF_SERVICES, needs_services=program not in OF_FILE)
    as_it_was, _ = last.again()
    _note_start(programs, needed.file)
    return f"Start {'all again' if words == as_it_was else 'all that is needed'}: `{needed.line(words)}`"


def _last_file(kafka: Cluster, topics: Topics, run: runs.Run | None) -> ActivatorFile:
    """Returns the file of the activator that was started last, with the last `run` or alone; None if it is not known.

    Returns `Unknown.FILE` if the activator was started alone, and its file is gone.
    """
    file = runs.last_file(kafka.bootstrap_servers, topics.prefix)
    file = run.file if file is None and run is not None else file
    if file is None or Path(file).exists():
        return file
    return None if run is not None and file == run.file else Unknown.FILE


def _is_first(program: str, file: ActivatorFile) -> bool:
    """Notes the start of a program; returns whether the command that runs has advised no such start before."""
    return hints.is_new(f"{program} {file if program in _WITH_FILE and isinstance(file, str) else ''}")


def _note_start(programs: Iterable[str], file: ActivatorFile) -> None:
    """Notes that the command that runs has advised the start of programs, with a file that is known or not."""
    for program in programs:
        for each in {file, None}:
            _is_first(program, each)


def _shown(file: ActivatorFile) -> str:
    return shown(file, working_directory()) if isinstance(file, str) else Unknown.FILE.value


def command(program: str, file: str = Unknown.FILE.value) -> str:
    """Returns the command line that starts a program alone."""
    words = [_WITH_FILE[program], "--config", file] if program in _WITH_FILE else [program]
    return hints.command(*words)


def may_run(kafka: Cluster, topics: Topics, program: str) -> bool:
    """Returns whether a program runs. If that is unknown, returns whether the program is the monitor."""
    try:
        return is_running(kafka, topics, program)
    except UserError:
        return program == "monitor"  # most users have the right to see the monitor's group, and no other group


def _is_in_the_way(kafka: Cluster, topics: Topics, program: str) -> bool:
    """Returns whether a program runs or is starting beside which a new `run` would fail.

    After a `run` was killed, its other processes are about to end. Only a program whose member names a process is
    certain to run.
    """
    if any(program in each.unready for each in _notes(kafka, topics, program)):
        return True
    run = runs.last(kafka.bootstrap_servers, topics.prefix)
    if run is None or not run.was_killed:
        return may_run(kafka, topics, program)
    try:
        found = members(kafka, topics, program)
    except UserError:
        return program == "monitor"  # see `may_run`
    if program in _OF_PROCESS:
        return not all(has_ended(each.client_id) for each in found)
    return any(process_of(each.client_id) and not has_ended(each.client_id) for each in found)


def starting(kafka: Cluster, topics: Topics, program: str, committed_ms: int | None = None) -> str:
    """Returns the sentence, without its period, that a `run` is about to start a program, or that it starts alone.

    While a `run` is about to take the place of a monitor or a router, that program runs, and the programs that were
    started with it. So the sentence is empty, as it is if nothing starts.

    Args:
        kafka: The cluster.
        topics: The topics.
        program: The program.
        committed_ms: When such a program last committed a batch; 0: so long ago that none works; None: not known. A
            program that has committed a batch since the `run` was started is not about to start.
    """
    for each in _notes(kafka, topics, program):
        if program in each.unready and (committed_ms or 0) < each.started_ms:
            is_known_idle = committed_ms == 0
            return each.doing() if is_known_idle or not _is_beside(kafka, topics, program, each) else ""
    return ""


def _is_beside(kafka: Cluster, topics: Topics, program: str, run: runs.Run) -> bool:
    """Returns whether a program that a `run` has not started runs, as far as this is known. The note may be its own.

    Only monitors and routers are in the process of their `run`. So their members tell whether the `run` is about to
    take their place.
    """
    to_replace = [program] if program in _OF_PROCESS else [each for each in run.programs if each in _OF_PROCESS]
    with suppress(UserError):
        found = [each.client_id for other in to_replace for each in members(kafka, topics, other)]
        is_to_replace = any(not run.is_process_of(each) and not has_ended(each) for each in found)
        return is_to_replace and (program in _OF_PROCESS or is_running(kafka, topics, program))
    return False


def a_program(program: str) -> str:
    """Returns a program's name with its article."""
    return f"{'an' if program[0] in 'ao' else 'a'} {program}"
