"""The activator's settings, its events, and the environment of its programs."""

from dataclasses import dataclass
from pathlib import Path

from producers.reader import SESSION_ID_VARIABLE
from streaming.core.times import iso_time
from streaming.daemons.activator.config import ProgramEntry
from streaming.kafka.clients import Cluster
from streaming.system.ages import instant
from streaming.system.logs import printable
from streaming.system.processes import connection_environment, own_environment
from streaming.wire.own_groups import own_group

DEFAULT_GROUP_ID = own_group("activator")
READY = "ready"
# Interval at which the activator saves that it gets on.
SEEN_INTERVAL_S = 5.0


@dataclass(frozen=True)
class ActivatorSettings:
    """The settings of `queue-activation activator`.

    `cluster` has the properties of `kafka_config_file` already; the file's name is passed to the programs.
    """

    cluster: Cluster
    config_file: Path
    state_directory: Path
    topic_prefix: str = ""
    group_id: str | None = None
    kafka_config_file: Path | None = None
    stop_programs: bool = False


@dataclass(frozen=True)
class ActivatorEvent:
    """A decision or another event; `queue` is None if the event is about the activator itself."""

    at_ms: int
    queue: str | None
    what: str
    why: str
    pid: int | None = None

    def line(self) -> str:
        """Returns the event as a line for the log."""
        process = f" (process {self.pid})" if self.pid is not None else ""
        at = instant(iso_time(self.at_ms))
        return printable(f"{at} {self.queue or 'activator'}: {self.what}{process}: {self.why}")


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
