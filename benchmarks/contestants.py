"""Who is measured: the monitor and its peers, each as processes that say how many events they have processed."""

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment

PEERS = Path(__file__).with_name("peers")
_POLL_S = 0.02
# What makes this process use the compiled packages; peers have environments of their own.
_OWN_PATH = ("PYTHONPATH", "PYTHONSAFEPATH")
# Longer than any run, for every contestant; see generate.py.
LONG = "1h"
# More than the largest set has, with room for an uneven hash.
MAX_QUEUES = "10000000"
# Spark takes no more than such a part of the input into a batch (spark-per-key does the same): otherwise a small input
# would be one batch, and nothing of it warm. For the main set it is the monitor's default.
SPARK_BATCHES = 6


@dataclass
class Progress:
    """(seconds since the start, events processed), as often as the contestant says so."""

    started_s: float = field(default_factory=time.monotonic)
    points: list[tuple[float, int]] = field(default_factory=list)

    def add(self, events: int) -> None:
        """Takes note of how many events are processed now."""
        if not self.points or events != self.points[-1][1]:
            self.points.append((time.monotonic() - self.started_s, events))

    def when(self, events: int) -> float:
        """When so many events were processed, seconds since the start, by the straight line between two points."""
        before = (0.0, 0)
        for at_s, count in self.points:
            if count >= events:
                share = (events - before[1]) / (count - before[1])
                return before[0] + share * (at_s - before[0])
            before = at_s, count
        raise ValueError(f"only {before[1]} of {events} events were processed")


@dataclass(frozen=True)
class Contestant:
    """One row of the table.

    Attributes:
        name: As shown.
        peer: Its folder below `peers`; None: the monitor itself.
        variant: One of the peer's.
    """

    name: str
    peer: str | None = None
    variant: str | None = None

    @property
    def is_set_up(self) -> bool:
        """Tells by what a peer's `setup` makes last that it can be run: a copy of its requirements, or its classes."""
        if self.peer is None:
            return True
        build = PEERS / self.peer / ".build"
        return (build / "installed.txt").exists() or (build / "classes").exists()

    @contextmanager
    def running(self, bootstrap_servers: str, prefix: str, events: int, folder: Path) -> Iterator["Run"]:
        """Runs it from an empty state; it has begun when the block does."""
        kafka = ["--bootstrap-servers", bootstrap_servers]
        env = own_environment()
        if self.peer is None:
            checkpoint = folder / "checkpoint"
            options = [*kafka, "--topic-prefix", prefix, "--checkpoint-location", str(checkpoint)]
            options += ["--max-offsets-per-trigger", str(events // SPARK_BATCHES)]
            options += ["--max-queues", MAX_QUEUES]
            options += ["--quiet-window", LONG, "--external-activation-timeout", LONG, "--session-lease", "2h"]
            command: list[str | Path] = [*THIS_COMMAND, "monitor", *options]
        else:
            checkpoint = None
            env = {name: value for name, value in env.items() if name not in _OWN_PATH}
            command = [PEERS / self.peer / "run", *kafka, "--prefix", prefix, "--state-dir", str(folder / "state")]
            command += ["--output-topic", f"{prefix}queue-activations", "--events", str(events)]
            command += ["--variant", self.variant] if self.variant else []
        log = folder / "log"
        log.touch()
        progress = Progress()
        with ChildProcess(command, log_file=log, env=env) as process:
            yield Run(process, progress, log, checkpoint)


@dataclass
class Run:
    """A contestant at work."""

    process: ChildProcess
    progress: Progress
    log: Path
    checkpoint: Path | None
    peak_bytes: int = 0
    _counted: int = 0

    def wait_for(self, events: int, timeout_s: float) -> None:
        """Waits until it has processed so many events; raises RuntimeError if it ends before, or the time is over."""
        deadline_s = time.monotonic() + timeout_s
        looks = 0
        while True:
            self.progress.add(self._processed())
            if self.progress.points and self.progress.points[-1][1] >= events and self._is_done():
                return
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"it did not get there:\n{self.log.read_text()[-3000:]}")
            if looks % 25 == 0:
                self.peak_bytes = max(self.peak_bytes, resident_bytes(self.process.pid))
            looks += 1
            time.sleep(_POLL_S)

    def _processed(self) -> int:
        if self.checkpoint is not None:
            return committed_events(self.checkpoint)
        counts = re.findall(rb"^events (\d+)", self.log.read_bytes()[-20_000:], re.MULTILINE)
        if counts:
            self._counted = int(counts[-1])
        return self._counted

    def _is_done(self) -> bool:
        return self.checkpoint is not None or b"\ndone" in self.log.read_bytes()[-20_000:]


def committed_events(checkpoint: Path, topics: tuple[str, ...] = ("queue-arrivals", "queue-receives")) -> int:
    """The events of the arrivals and receives, or of other topics, up to the last batch that Spark has committed."""
    commits = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*") if path.name.isdigit()]
    if not commits:
        return 0
    try:
        lines = (checkpoint / "offsets" / str(max(commits))).read_text().splitlines()
    except FileNotFoundError:
        return 0
    total = 0
    for line in lines[2:]:
        for topic, partitions in json.loads(line).items():
            if topic.endswith(topics):
                total += sum(partitions.values())
    return total


def resident_bytes(pid: int) -> int:
    """Memory of a process and all that descend from it."""
    children: dict[int, list[int]] = {}
    sizes: dict[int, int] = {}
    page = os.sysconf("SC_PAGE_SIZE")
    # No glob with more than one part: it looks at each, and a process may be gone by then.
    for stat in (process / "stat" for process in Path("/proc").glob("[0-9]*")):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        one = int(stat.parent.name)
        children.setdefault(int(fields[1]), []).append(one)
        sizes[one] = int(fields[21]) * page
    total, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        total += sizes.get(one, 0)
        waiting += children.get(one, [])
    return total
