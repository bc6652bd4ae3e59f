"""The activator's settings and its events."""

from dataclasses import dataclass
from pathlib import Path

from streaming.core.times import iso_time
from streaming.kafka.clients import Cluster
from streaming.system.ages import instant
from streaming.system.logs import printable
from streaming.wire.own_groups import own_group

DEFAULT_GROUP_ID = own_group("activator")
READY = "ready"
# Interval at which the activator saves a sign of life.
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
    group_id: str = ""
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
