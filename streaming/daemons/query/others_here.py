"""Looks before a start for programs that work on the same topics as processes of this machine.

One that works does not end by itself, so a newcomer is refused at once. Those on other machines are left to
`SoleProgram`, which finds out whether they are alive.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from streaming.daemons.query.sole_program import Kind
from streaming.errors import UserError
from streaming.kafka.admin import Admin
from streaming.system.client_ids import running_here

# The programs of a `run` that was killed have ended by then: their watchdogs give them 5 s.
_PATIENCE_S = 6.0
_POLL_INTERVAL_S = 0.1
_LOOK_TIMEOUT_S = 2.0


def await_ends(admin: Admin, topic_prefix: str, kinds: Iterable[Kind], say: Callable[[str], None]) -> None:
    """Waits for the ends of programs of these kinds that run on this machine.

    Args:
        admin: Lists the members of their consumer groups.
        topic_prefix: The topic prefix.
        kinds: The kinds.
        say: Called with a line about what it waits for.

    Raises:
        UserError: One does not end.
    """
    deadline_s = time.monotonic() + _PATIENCE_S
    for kind, member in _members(admin, topic_prefix, kinds):
        is_told = False
        while (pid := running_here(member, kind.name, "run")) is not None:
            if time.monotonic() >= deadline_s:
                raise UserError(
                    f"A {kind.name} works on these topics already, so nothing was started: process {pid} on this "
                    "machine, perhaps under a `run`. If that one is a `run FILE`, leave it: it picks up the changes of "
                    f"FILE. To replace it, end it with Ctrl-C or `kill {pid}` and try again; if both have the same "
                    "checkpoint, --take-over does that. To run both, give one of them its own --topic-prefix and "
                    "checkpoint."
                )
            if not is_told:
                is_told = True
                say(
                    f"a {kind.name} works on these topics already: process {pid}. Waiting up to {_PATIENCE_S:.0f} s "
                    "for its end"
                )
            time.sleep(_POLL_INTERVAL_S)


def _members(admin: Admin, topic_prefix: str, kinds: Iterable[Kind]) -> list[tuple[Kind, str]]:
    """Returns the client ids of the programs of these kinds; none if Kafka does not say."""
    found: list[tuple[Kind, str]] = []
    with suppress(UserError):
        for kind in kinds:
            members = admin.members(topic_prefix + kind.group_id, _LOOK_TIMEOUT_S)
            found += [(kind, member.client_id) for member in members]
    return found
