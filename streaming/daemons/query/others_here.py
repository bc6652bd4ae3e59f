"""Looks before a start for other programs on the same topics that are processes of this machine.

Such a program does not end by itself, so a newcomer is refused after a short wait. A newcomer is also refused beside a
`run` that starts, because Kafka does not know the programs of that `run` yet. `SoleProgram` finds out whether programs
on other machines are alive.
"""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from streaming.daemons.query.sole_program import Kind
from streaming.errors import UserError
from streaming.kafka.admin import Admin
from streaming.system import runs
from streaming.system.client_ids import running_here

# The programs of a `run` that was killed have ended by then: their watchdogs give them 5 s.
_PATIENCE_S = 6.0
_POLL_INTERVAL_S = 0.1
_LOOK_TIMEOUT_S = 2.0


def await_ends(admin: Admin, topic_prefix: str, kinds: Sequence[Kind], say: Callable[[str], None]) -> None:
    """Waits for the ends of programs of these kinds that run on this machine.

    Args:
        admin: Lists the members of the programs' consumer groups.
        topic_prefix: The topic prefix.
        kinds: The kinds.
        say: Called with a line about the program whose end is awaited.

    Raises:
        UserError: Such a program does not end, or a `run` is about to start such a program.
    """
    refuse_beside_start(admin.servers, topic_prefix, [kind.name for kind in kinds])
    deadline_s = time.monotonic() + _PATIENCE_S
    for kind, member in _members(admin, topic_prefix, kinds):
        is_told = False
        while (pid := running_here(member, kind.name, "run")) is not None:
            if time.monotonic() >= deadline_s:
                raise UserError(
                    f"A {kind.name} works on these topics already, so nothing was started: process {pid} on this "
                    "machine, perhaps under a `run`. If that one is a `run FILE`, leave it: it picks up the changes of "
                    f"FILE. {_how_to_replace(pid)}"
                )
            if not is_told:
                is_told = True
                found = f"a {kind.name} works on these topics already: process {pid}"
                say(f"{found}. Waiting up to {_PATIENCE_S:.0f} s for its end")
            time.sleep(_POLL_INTERVAL_S)


def refuse_beside_start(servers: str, topic_prefix: str, programs: Iterable[str]) -> None:
    """Raises UserError if another `run` of this user is about to start one of these programs on the same topics."""
    run = runs.last(servers, topic_prefix)
    if run is None or not run.is_starting or run.process.pid == os.getpid() or not {*programs} & {*run.programs}:
        return
    changes = "" if run.file is None else f" Leave it: it picks up the changes of {run.shown_file() or run.file}."
    raise UserError(
        f"{run.doing()} on these topics already, so nothing was started.{changes} {_how_to_replace(run.process.pid)}"
    )


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
