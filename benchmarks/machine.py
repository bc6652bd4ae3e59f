"""The line that says on which machine a benchmark ran."""

import os
import platform

from streaming.core.activation import queue


def machine() -> str:
    """Describes the machine and the monitor, which is compiled in a user's installation and interpreted in `.venv`."""
    monitor = "interpreted" if queue.__file__.endswith(".py") else "compiled"
    return f"machine: {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {monitor}"
