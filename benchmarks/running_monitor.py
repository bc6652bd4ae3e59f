"""A broker and a monitor of its own, for the benchmarks that measure the monitor alone."""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from contestants import committed_events, resident_bytes

from streaming.cli.monitor_process import monitor_process
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system.embedded_broker import EmbeddedBroker
from streaming.system.processes import THIS_COMMAND
from streaming.wire.topics import Topics

TOPICS = Topics()
_READY_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class RunningMonitor:
    """A monitor that is ready.

    Attributes:
        cluster: Its broker.
        pid: Its process.
        checkpoint: Its checkpoint.
        ready_after_s: How long it took to be ready.
    """

    cluster: Cluster
    pid: int
    checkpoint: Path
    ready_after_s: float

    def resident_bytes(self) -> int:
        """Memory of its processes: driver, JVM, workers."""
        return resident_bytes(self.pid)

    def committed_events(self) -> int:
        """How many arrivals and receives its committed batches have read."""
        return committed_events(self.checkpoint)

    def committed_batches(self) -> list[int]:
        """The numbers of the batches whose commits the checkpoint still has."""
        return sorted(int(path.name) for path in (self.checkpoint / "commits").iterdir() if path.name.isdigit())

    def batch_s(self, number: int) -> float:
        """How long a batch took, from its offsets to its commit; raises FileNotFoundError for one not kept any more."""
        return self.committed_at_s(number) - (self.checkpoint / "offsets" / str(number)).stat().st_mtime

    def committed_at_s(self, number: int) -> float:
        """When a batch was committed."""
        return (self.checkpoint / "commits" / str(number)).stat().st_mtime

    def state_bytes(self, number: int) -> int:
        """What a batch has written of the state, compressed."""
        return sum(path.stat().st_size for path in self.checkpoint.glob(f"state/0/*/{number + 1}.delta"))


@contextmanager
def running_monitor(*options: str) -> Iterator[RunningMonitor]:
    """Starts a broker and a monitor with these options; the monitor is ready when the block begins."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker() as broker:
        cluster = Cluster(broker.bootstrap_servers, {})
        Admin(cluster).create_topics(TOPICS.specs(), partitions=2, replication_factor=1)
        started_s = time.monotonic()
        with monitor_process(broker.bootstrap_servers, Path(folder), _READY_TIMEOUT_S, *options) as process:
            yield RunningMonitor(cluster, process.pid, Path(folder, "checkpoint"), time.monotonic() - started_s)


def prepare() -> None:
    """Sees to it that there is the archive of Java's classes that a machine's prepared monitors start with."""
    subprocess.run([*THIS_COMMAND, "prepare"], stdout=subprocess.DEVNULL, check=True)
