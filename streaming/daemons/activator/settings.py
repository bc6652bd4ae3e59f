"""What the activator is told, what it tells, and what its programs are told."""

from dataclasses import dataclass
from pathlib import Path

from producers.reader import SESSION_ID_VARIABLE
from streaming.core.times import iso_time
from streaming.daemons.activator.config import ProgramEntry
from streaming.kafka.clients import Cluster
from streaming.system.logs import printable
from streaming.system.processes import connection_environment, own_environment

DEFAULT_GROUP_ID = "queue-activation-activator"
READY = "ready"


@dataclass(frozen=True)
class ActivatorSettings:
    """What `queue-activation activator` is told; `kafka_config_file` is for the programs, `cluster` has it already."""

    cluster: Cluster
    config_file: Path
    state_directory: Path
    topic_prefix: str = ""
    group_id: str | None = None
    kafka_config_file: Path | None = None
    stop_programs: bool = False


@dataclass(frozen=True)
class ActivatorEvent:
    """Something that was decided or has happened; `queue` is None for what is about the activator itself."""

    at_ms: int
    queue: str | None
    what: str
    why: str
    pid: int | None = None

    def line(self) -> str:
        """One line for the log."""
        process = f" (process {self.pid})" if self.pid is not None else ""
        return printable(f"{iso_time(self.at_ms)} {self.queue or 'activator'}: {self.what}{process}: {self.why}")


def environment_for(
    settings: ActivatorSettings, entry: ProgramEntry, queue: str, session_id: str, notification_id: str | None
) -> dict[str, str]:
    """A program's environment; with it `queue-activation read QUEUE` needs no option.

    The entry may say otherwise where Kafka is, and with which file of properties: a reader has a user of its own.
    """
    return {
        **own_environment(),
        **connection_environment(settings.cluster.bootstrap_servers, settings.topic_prefix, settings.kafka_config_file),
        **entry.environment,
        SESSION_ID_VARIABLE: session_id,
        "QUEUE_ACTIVATION_QUEUE": queue,
        "QUEUE_ACTIVATION_NOTIFICATION_ID": notification_id or "",
    }
