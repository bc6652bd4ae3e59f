"""What the monitor's own JVM starts Python workers with: PySpark's daemon, quiet about answers that nobody reads.

When a batch fails, Spark closes the sockets of the tasks that still run. PySpark's worker would then write the
traceback of a broken pipe beside the reason for the failure.
"""

import os
import socket

from pyspark import daemon

_run_worker = daemon.worker


def run_worker(sock: socket.socket, authenticated: bool) -> int:
    """Serves one task, and ends the process if Spark has closed the socket before it read all.

    Returns:
        What PySpark's own returns: 0 if the worker may serve another task.
    """
    try:
        return _run_worker(sock, authenticated)
    except BrokenPipeError:
        os._exit(1)  # as PySpark's daemon does, which writes the traceback first


if __name__ == "__main__":
    daemon.worker = run_worker
    daemon.manager()
