"""The names under which programs are members of their consumer groups: host and process."""

import os
import re
import socket
from pathlib import Path

from streaming.system.process_identity import identity_of

_NOT_FOR_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_NAME_LENGTH = 64


def client_id(location: str) -> str:
    """Returns the name that a program shows to others: host, process id, last part of its checkpoint's location."""
    return f"{_host()}_{os.getpid()}_{_for_a_name(location.rstrip('/').rpartition('/')[2])}"


def _host() -> str:
    return _for_a_name(socket.gethostname())


def _for_a_name(text: str) -> str:
    return _NOT_FOR_A_NAME.sub("-", text)[:_MAX_NAME_LENGTH]


def has_ended(name: str) -> bool:
    """Returns whether the program with a `client_id` was a process of this host that has ended."""
    pid = process_of(name)
    # The first process of a container that starts again has the process id of its predecessor.
    return pid is not None and (pid == os.getpid() or not _is_running(pid))


def running_here(name: str, *commands: str) -> int | None:
    """Returns the process id of the program with a `client_id`; None if it is not certain that it runs on this host.

    Args:
        name: The client id.
        commands: The program's command line must have one of these words. In another container with the same host name,
            the process id may belong to another program.
    """
    pid = process_of(name)
    if pid is None or has_ended(name):
        return None
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    return pid if any(each.encode() in words for each in commands) else None


def process_of(name: str) -> int | None:
    """Returns the process id in a `client_id` of this host; None if the name is of another host or another form."""
    host = f"{_host()}_"
    pid = name.removeprefix(host).partition("_")[0]
    return int(pid) if name.startswith(host) and pid.isdecimal() else None


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # a process of another user, which hidepid may hide
        return True
    return identity_of(pid) is not None
