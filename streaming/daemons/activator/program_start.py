"""Starts a program as an entry of the config says."""

from pathlib import Path

from producers.reader import SESSION_ID_VARIABLE
from streaming.daemons.activator.config import ProgramEntry
from streaming.daemons.activator.programs import StartedProgram, default_log_file
from streaming.daemons.activator.settings import ActivatorSettings
from streaming.system.processes import connection_environment, own_environment


def start(
    settings: ActivatorSettings, entry: ProgramEntry, queue: str, session_id: str, notification_id: str | None
) -> StartedProgram:
    """Starts a program for a queue. The program waits at its gate.

    Raises:
        OSError: The program cannot be started.
        ValueError: There is a NUL character in an argument or a variable.
    """
    return StartedProgram(
        entry.command_for(queue),
        environment_for(settings, entry, queue, session_id, notification_id),
        Path(entry.directory) if entry.directory is not None else None,
        entry.log_file_for(queue) or default_log_file(settings.state_directory, queue),
    )


def environment_for(
    settings: ActivatorSettings, entry: ProgramEntry, queue: str, session_id: str, notification_id: str | None
) -> dict[str, str]:
    """Returns a program's environment, with which `queue-activation read QUEUE` needs no options.

    The entry may replace Kafka's address and the properties file, because a reader has a Kafka user of its own.
    """
    return {
        **own_environment(),
        **connection_environment(settings.cluster.bootstrap_servers, settings.topic_prefix, settings.kafka_config_file),
        **entry.environment,
        SESSION_ID_VARIABLE: session_id,
        "QUEUE_ACTIVATION_QUEUE": queue,
        "QUEUE_ACTIVATION_NOTIFICATION_ID": notification_id or "",
    }
