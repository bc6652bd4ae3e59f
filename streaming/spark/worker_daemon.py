"""PySpark's daemon for Python workers, without tracebacks for results that Spark no longer reads.

The monitor's own JVM starts its workers with this daemon. When a batch fails, Spark closes the sockets of the tasks
that still run. PySpark's worker would then write the traceback of a broken pipe beside the reason for the failure.
"""

import os
import socket

from pyspark import daemon

_run_worker = daemon.worker


def run_worker(sock: socket.socket, authenticated: bool) -> int:
    """Serves one task, and ends the process if Spark has closed the socket before reading the whole result.

    Returns:
        PySpark's own return value: 0 if the worker may serve another task.
    """
    try:
        return _run_worker(sock, authenticated)
    except BrokenPipeError:
        os._exit(1)  # as PySpark's daemon does, after writing the traceback


if __name__ == "__main__":
    daemon.worker = run_worker
    daemon.manager()
