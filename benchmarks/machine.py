"""What the figures of a benchmark were measured with."""

import os
import platform

from streaming.core.activation import queue


def machine() -> str:
    """The machine, and whether the monitor is compiled, as in a user's installation, or not, as in `.venv`."""
    monitor = "interpreted" if queue.__file__.endswith(".py") else "compiled"
    return f"machine: {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {monitor}"
