"""A broker and a monitor, for the benchmarks that measure the monitor alone."""

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


@dataclass(frozen=True)
class RunningMonitor:
    """A monitor that is ready.

    Attributes:
        cluster: The broker that it is connected to.
        pid: The id of its process.
        checkpoint: The folder of its checkpoint.
        ready_after_s: The time from its start until it was ready.
    """

    cluster: Cluster
    pid: int
    checkpoint: Path
    ready_after_s: float

    def resident_bytes(self) -> int:
        """Returns the resident memory of the monitor's processes: driver, JVM, workers."""
        return resident_bytes(self.pid)

    def committed_events(self) -> int:
        """Returns the number of arrivals and receives in committed batches."""
        return committed_events(self.checkpoint)

    def committed_batches(self) -> list[int]:
        """Returns the numbers of the batches whose commits the checkpoint still has."""
        return sorted(int(path.name) for path in (self.checkpoint / "commits").iterdir() if path.name.isdigit())

    def batch_s(self, number: int) -> float:
        """Returns the duration of a batch, from writing its offsets to writing its commit.

        Raises:
            FileNotFoundError: The checkpoint no longer has the batch.
        """
        return self.committed_at_s(number) - (self.checkpoint / "offsets" / str(number)).stat().st_mtime

    def committed_at_s(self, number: int) -> float:
        """Returns the time at which a batch was committed, in seconds since 1970."""
        return (self.checkpoint / "commits" / str(number)).stat().st_mtime

    def state_bytes(self, number: int) -> int:
        """Returns the bytes of state that a batch has written, compressed."""
        return sum(path.stat().st_size for path in self.checkpoint.glob(f"state/0/*/{number + 1}.delta"))


@contextmanager
def running_monitor(*options: str) -> Iterator[RunningMonitor]:
    """Runs a broker and a monitor with these options for the length of the block; waits until the monitor is ready."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker() as broker:
        cluster = Cluster(broker.bootstrap_servers, {})
        Admin(cluster).create_topics(TOPICS.specs(), partitions=2, replication_factor=1)
        started_s = time.monotonic()
        with monitor_process(broker.bootstrap_servers, Path(folder), *options) as process:
            yield RunningMonitor(cluster, process.pid, Path(folder, "checkpoint"), time.monotonic() - started_s)


def prepare() -> None:
    """Runs `queue-activation prepare`, so that monitors start with the archive of Java's classes."""
    subprocess.run([*THIS_COMMAND, "prepare"], stdout=subprocess.DEVNULL, check=True)
