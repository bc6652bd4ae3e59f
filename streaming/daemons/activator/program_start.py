"""Starts a program as an entry of the config says."""

from pathlib import Path

from streaming.daemons.activator.config import ProgramEntry
from streaming.daemons.activator.programs import StartedProgram, default_log_file
from streaming.daemons.activator.settings import ActivatorSettings, environment_for


def start(
    settings: ActivatorSettings, entry: ProgramEntry, queue: str, session_id: str, notification_id: str | None
) -> StartedProgram:
    """Starts a program for a queue, which waits at its gate.

    Raises:
        OSError: It cannot be started.
        ValueError: There is a NUL character in an argument or a variable.
    """
    return StartedProgram(
        entry.command_for(queue),
        environment_for(settings, entry, queue, session_id, notification_id),
        Path(entry.directory) if entry.directory is not None else None,
        entry.log_file_for(queue) or default_log_file(settings.state_directory, queue),
    )
