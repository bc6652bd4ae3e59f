"""PySpark's daemon for Python workers, changed: it starts faster, ignores SIGTERM, and writes no needless traceback.

A JVM that a monitor or a router starts uses this daemon for its workers.

Spark puts pyspark.zip before all other places of the import path. Python compiles the modules of an archive anew in
each process, which takes 0.7 s before the first batch. So the daemon looks for modules in folders first. There it finds
the installed PySpark with its bytecode, with which the driver runs.

systemd and the shutdown of a machine send SIGTERM to all processes at once. The workers have to finish the batch in
progress. They end when Spark closes the daemon's standard input.

When a batch fails, Spark closes the sockets of the tasks that still run. PySpark's worker would then write the
traceback of a broken pipe beside the reason for the failure.
"""

import os
import signal
import socket
import sys
from typing import Protocol


class _RunWorker(Protocol):
    """Serves one task. Returns 0 if the worker may serve another task."""

    def __call__(self, sock: socket.socket, authenticated: bool) -> int: ...


def main() -> None:
    """Serves Spark until Spark closes the standard input."""
    sys.path.sort(key=_is_archive)
    from pyspark import daemon  # noqa: PLC0415 - it is looked for in the path as it is now

    # The workers inherit the mask. PySpark gives both their own handlers for SIGTERM.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    daemon.worker = _ending_silently(daemon.worker)
    daemon.manager()


def _is_archive(place: str) -> bool:
    return place.endswith((".zip", ".jar"))


def _ending_silently(run_worker: _RunWorker) -> _RunWorker:
    def worker(sock: socket.socket, authenticated: bool) -> int:
        """Serves one task, and ends the process if Spark has closed the socket before reading the whole result."""
        try:
            return run_worker(sock, authenticated)
        except BrokenPipeError:
            os._exit(1)  # as PySpark's daemon does, after writing the traceback

    return worker


if __name__ == "__main__":
    main()
