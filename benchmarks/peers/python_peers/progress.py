"""Counts the processed events of any number of processes, and prints the sum."""

import functools
import mmap
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from python_peers.command_line import Options

# A peer must print at least every 200 ms while the number changes.
_PRINT_INTERVAL_S = 0.1
_BYTES = 8


class EventCounter:
    """The number of events that one task has processed, in a file that other processes can read at any time."""

    def __init__(self, folder: Path) -> None:
        with tempfile.NamedTemporaryFile(dir=folder, prefix="events-", delete=False) as file:
            file.truncate(_BYTES)
            self._number = memoryview(mmap.mmap(file.fileno(), _BYTES)).cast("q")

    def add(self, events: int = 1) -> None:
        """Counts events."""
        self._number[0] += events


@functools.cache
def process_counter(folder: Path) -> EventCounter:
    """Returns the only counter of this process, for functions that are not called when their task begins."""
    return EventCounter(folder)


def count(folder: Path) -> int:
    """Returns the sum of all counters."""
    return sum(int.from_bytes(path.read_bytes(), sys.byteorder) for path in folder.glob("events-*"))


def quiet_children(folder: Path) -> None:
    """Redirects the output of this process's children to a file. Only this process still writes to the old output.

    Engines print so much that the lines about progress would be hard to find.
    """
    sys.stdout, sys.stderr = (os.fdopen(os.dup(descriptor), "w", buffering=1) for descriptor in (1, 2))
    with _log(folder).open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)


def _log(folder: Path) -> Path:
    return folder / "log"


def _end_of_log(folder: Path) -> str:
    return _log(folder).read_text(errors="replace")[-3000:] if _log(folder).exists() else ""


def stop_event() -> threading.Event:
    """Returns an event that SIGTERM and Ctrl-C set."""
    is_stopping = threading.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: is_stopping.set())
    return is_stopping


def print_progress(
    options: Options,
    is_committed: Callable[[], bool],
    is_running: Callable[[], bool],
    is_stopping: threading.Event,
) -> None:
    """Prints the sum while it changes, then `done` once all input is processed and committed; runs until it is stopped.

    Raises:
        SystemExit: The peer ended by itself.
    """
    printed = 0
    is_done = False
    while not is_stopping.wait(_PRINT_INTERVAL_S):
        if not is_running():
            raise SystemExit(f"The peer ended by itself:\n{_end_of_log(options.folder)}")
        total = count(options.folder)
        if total != printed:
            printed = total
            print(f"events {total}", flush=True)
        if not is_done and total >= options.events and is_committed():
            is_done = True
            print("done", flush=True)
