"""Sends a program a signal at some instant of its start, and checks its output and that no process is left."""

import os
import re
import signal
import subprocess
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from producers.queue_topics import create_queue_topics
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system.processes import THIS_COMMAND, own_environment
from streaming.wire.topics import Topics
from tests.support.waiting import processes_with, wait_until

# An environment variable that all descendants inherit.
MARK = "STOPPED_START"
# A little longer than each program takes to be ready on two cores.
RANGES_S = {"monitor": 11.0, "broker": 4.0, "activator": 2.0, "host": 2.0, "read": 2.0, "watch": 1.5, "workload": 2.0}
# An idle machine needs this long until the program has taken its signals. A busy one needs a multiple of it.
INTERPRETER_S = 0.15
_SLOWEST_INTERPRETER_S = 20 * INTERPRETER_S


@dataclass(frozen=True)
class Found:
    """The end of a program: exit code, time from the signal to the end, output, and who has got the signal.

    As long as the interpreter itself starts, Python answers a signal with a traceback of its own imports, or drops it
    (`Exception ignored`), and a second signal is needed.
    """

    exit_code: int
    took_s: float
    output: str
    has_taken_signals: bool

    def problem(self, command: str, number: signal.Signals, after_s: float) -> str | None:
        """Returns a description of what is wrong with the end; None if nothing is."""
        said = self.output.strip().splitlines()
        stopped = self.exit_code == 0 and said[-1:] == [f"{command} stopped"]
        broken_off = self.exit_code == 128 + number and said[-1:] == [f"stopped by {number.name}"]
        is_starting = not self.has_taken_signals and after_s < _SLOWEST_INTERPRETER_S
        if is_starting and "streaming" not in self.output:
            return None
        has_trace = any(line.startswith(("Traceback", "\tat ", "Exception ")) for line in said)
        if has_trace or not (stopped or broken_off):
            return f"{command}, {number.name} after {after_s:.2f} s: exit code {self.exit_code}, output:\n{self.output}"
        return None


def options(command: str, folder: Path, bootstrap_servers: str) -> list[str]:
    """Returns options with which a command runs until it is stopped, on its own topics, which this function creates."""
    prefix = f"x-{uuid.uuid4().hex[:8]}-"
    queue = f"q-{prefix}"
    Admin(Cluster(bootstrap_servers)).create_topics(Topics(prefix).specs(), partitions=1, replication_factor=1)
    (folder / "activator.toml").write_text('[[programs]]\nqueue = "*"\ncommand = "true"\n')
    (folder / "host.toml").write_text('[[procedures]]\nname = "*"\ncommand = "true"\n')
    if command == "broker":
        return ["--port", "0"]
    own = {
        "monitor": ["--checkpoint-location", str(folder / f"checkpoint-{prefix}")],
        "activator": ["--config", str(folder / "activator.toml"), "--state-directory", str(folder / f"state-{prefix}")],
        "host": ["--config", str(folder / "host.toml")],
        "read": [queue, "--wait", "1h"],
        "watch": [],
        "workload": ["--duration", "1h", "--rate", "1", "--queues", "1"],
    }[command]
    if command == "read":
        create_queue_topics(bootstrap_servers, [queue], partitions=1, replication_factor=1)
    return ["--bootstrap-servers", bootstrap_servers, "--topic-prefix", prefix, *own]


def catches(pid: int, number: signal.Signals) -> bool:
    """Returns whether a running process has a handler for the signal. Python has none of its own for SIGTERM."""
    caught = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert caught is not None
    return bool(int(caught[1], 16) >> (number - 1) & 1)


def stop_after(  # noqa: PLR0917
    command: str, more: list[str], after_s: float, number: signal.Signals, folder: Path, deadline_s: float
) -> Found:
    """Starts the program, sends it the signal after `after_s`, and waits until all its processes have ended.

    Raises:
        AssertionError: A process has not ended in time.
    """
    mark = f"{MARK}={uuid.uuid4()}"
    name, _, value = mark.partition("=")
    log_file = folder / "output"
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [*THIS_COMMAND, command, *more],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=own_environment() | {name: value},
            start_new_session=True,
        )
        try:
            time.sleep(after_s)  # the instant itself
            has_taken_signals = catches(process.pid, signal.SIGTERM)
            process.send_signal(number)
            begin_s = time.monotonic()
            if not has_taken_signals:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(deadline_s / 2)
                process.send_signal(number)
            exit_code = process.wait(deadline_s)
            what = f"the end of all processes of {command}, {number.name} after {after_s:.2f} s"
            wait_until(lambda: not processes_with(mark, "environ"), deadline_s - (time.monotonic() - begin_s), what)
        finally:
            for pid in processes_with(mark, "environ"):
                os.kill(pid, signal.SIGKILL)
            process.wait()
    output = log_file.read_text(errors="replace")
    return Found(exit_code, time.monotonic() - begin_s, output, has_taken_signals)
