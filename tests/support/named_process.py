"""A process of this machine that looks like a program of ours."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import wait_until

_DEADLINE_S = 5.0


@contextmanager
def named_process(name: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a process whose command line has the name; it ends with the block."""
    with subprocess.Popen(["/bin/sh", "-c", "read line", name], stdin=subprocess.PIPE) as process:
        # The system may show the new command line later than it starts the command.
        command_line = Path(f"/proc/{process.pid}/cmdline")
        wait_until(lambda: name.encode() in command_line.read_bytes(), _DEADLINE_S, "the process's command line")
        yield process
