"""Looks before a start for other programs on the same topics that are processes of this machine.

Such a program does not end by itself, so a newcomer is refused after a short wait. A newcomer is also refused while a
`run` starts, because Kafka does not know the programs of that `run` yet. `SoleProgram` finds out whether programs
on other machines run.
"""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from streaming.daemons.query.sole_program import Kind
from streaming.errors import UserError
from streaming.kafka.admin import Admin
from streaming.system import paths, runs
from streaming.system.client_ids import running_here
from streaming.system.runs import Run

# The programs of a `run` that was killed have ended by then: their watchdogs give them 5 s.
_PATIENCE_S = 6.0
_POLL_INTERVAL_S = 0.1
_LOOK_TIMEOUT_S = 2.0


def await_ends(
    admin: Admin, topic_prefix: str, kinds: Sequence[Kind], say: Callable[[str], None], file: str | None = None
) -> None:
    """Waits for the ends of programs of these kinds that run on this machine.

    Args:
        admin: Lists the members of the programs' consumer groups.
        topic_prefix: The topic prefix.
        kinds: The kinds.
        say: Called with a line about the program whose end is awaited.
        file: The full name of the newcomer's activator file; None if the newcomer has none.

    Raises:
        UserError: Such a program does not end, or a `run` is about to start such a program.
    """
    refuse_beside_start(admin.servers, topic_prefix, [kind.name for kind in kinds], file)
    deadline_s = time.monotonic() + _PATIENCE_S
    for kind, member in _members(admin, topic_prefix, kinds):
        is_told = False
        while (pid := running_here(member, kind.name, "run")) is not None:
            if time.monotonic() >= deadline_s:
                run = runs.last(admin.servers, topic_prefix)
                run = None if run is None or run.process.pid != pid else run
                raise UserError(
                    f"A {kind.name} works on these topics already, so nothing was started: process {pid} on this "
                    f"machine, {'perhaps under' if run is None else 'which is'} a `run`.{_of_files(run, file)} "
                    f"{_how_to_replace(pid)}"
                )
            if not is_told:
                is_told = True
                found = f"a {kind.name} works on these topics already: process {pid}"
                say(f"{found}. Waiting up to {_PATIENCE_S:.0f} s for its end")
            time.sleep(_POLL_INTERVAL_S)


def refuse_beside_start(servers: str, topic_prefix: str, programs: Iterable[str], file: str | None) -> None:
    """Raises UserError if another `run` of this user is about to start one of these programs on the same topics.

    `file` is the full name of the newcomer's activator file; None if the newcomer has none.
    """
    run = runs.last(servers, topic_prefix)
    if run is None or not run.is_starting or run.process.pid == os.getpid() or not {*programs} & {*run.programs}:
        return
    raise UserError(
        f"{run.doing()} on these topics already, so nothing was started.{_of_files(run, file)} "
        f"{_how_to_replace(run.process.pid)}"
    )


def _of_files(run: Run | None, file: str | None) -> str:
    """Returns the sentence about the files of a working `run` and of the newcomer; empty if neither has a file.

    Args:
        run: The `run`; None if it is not known.
        file: The newcomer's file.
    """
    if run is None:
        return " If that one is a `run FILE`, leave it: it picks up the changes of FILE."
    here = paths.working_directory()
    own = None if file is None else paths.shown(file, here)
    if run.file is None:
        return "" if own is None else f" It was started without a file, so it starts nothing for {own}."
    its = paths.shown(run.file, here)
    if file is None or Path(file).resolve() == Path(run.file).resolve():
        return f" Leave it: it picks up the changes of {its}."
    return f" Its file is {its}, not {own}. To have it start the programs of {own} too, write them into {its}."


def _how_to_replace(pid: int) -> str:
    return (
        f"To replace it, end it with Ctrl-C or `kill {pid}` and try again; if both have the same checkpoint, "
        "--take-over does that. To run both, give one of them its own --topic-prefix and checkpoint."
    )


def _members(admin: Admin, topic_prefix: str, kinds: Iterable[Kind]) -> list[tuple[Kind, str]]:
    """Returns the kinds and the client ids of the programs of these kinds; none if Kafka does not answer."""
    found: list[tuple[Kind, str]] = []
    with suppress(UserError):
        for kind in kinds:
            members = admin.members(topic_prefix + kind.group_id, _LOOK_TIMEOUT_S)
            found += [(kind, member.client_id) for member in members]
    return found
