"""The contestants: the monitor and its peers, run as processes that report how many events they have processed."""

import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment

PEERS = Path(__file__).with_name("peers")
_POLL_S = 0.02
# These variables make this process use the compiled packages. Peers have environments of their own.
_OWN_PATH = ("PYTHONPATH", "PYTHONSAFEPATH")
# Longer than any run. Every contestant has this window and this time-out; see generate.py.
LONG = "1h"
# More queues than the largest set has, because a hash spreads them unevenly over the shards.
MAX_QUEUES = "10000000"
# Spark takes at most one sixth of the input into a batch, here and in spark-per-key. Otherwise a small input would be a
# single batch, and no part of it would be warm. For the main set this is the monitor's default.
SPARK_BATCHES = 6


@dataclass
class Progress:
    """The progress of a run: points (seconds since the start, events processed), one for each new count."""

    started_s: float = field(default_factory=time.monotonic)
    points: list[tuple[float, int]] = field(default_factory=list)

    def add(self, events: int) -> None:
        """Records the number of events that have been processed by now."""
        if not self.points or events != self.points[-1][1]:
            self.points.append((time.monotonic() - self.started_s, events))

    def when(self, events: int) -> float:
        """Returns when this many events were processed, in seconds since the start; interpolates between two points.

        Raises:
            ValueError: Fewer events were processed.
        """
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
        name: The name in the table.
        peer: The peer's folder below `peers`; None for the monitor itself.
        variant: One of the peer's variants; None for a peer without variants.
    """

    name: str
    peer: str | None = None
    variant: str | None = None

    @property
    def is_set_up(self) -> bool:
        """Returns whether `setup` has finished: whether its last result, copied requirements or classes, is there."""
        if self.peer is None:
            return True
        build = PEERS / self.peer / ".build"
        return (build / "installed.txt").exists() or (build / "classes").exists()

    @contextmanager
    def running(self, bootstrap_servers: str, prefix: str, events: int, folder: Path) -> Iterator["Run"]:
        """Runs the contestant from an empty state for the length of the block."""
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


def not_set_up(peers: Iterable[str]) -> SystemExit:
    """Returns the error that names peers that have not been set up, and what sets them up."""
    missing = sorted({*peers})
    setups = " && ".join(f"benchmarks/peers/{peer}/setup" for peer in missing)
    return SystemExit(f"not set up: {', '.join(missing)}. `make bench` does so, or: {setups}")


@dataclass
class Run:
    """A running contestant."""

    process: ChildProcess
    progress: Progress
    log: Path
    checkpoint: Path | None
    peak_bytes: int = 0
    _counted: int = 0

    def wait_for(self, events: int, timeout_s: float) -> None:
        """Waits until the contestant has processed this many events and, if it is a peer, has printed `done`.

        Raises:
            RuntimeError: The contestant ended too early, or the time is over.
        """
        deadline_s = time.monotonic() + timeout_s
        looks = 0
        while True:
            self.progress.add(self._processed())
            if self.progress.points and self.progress.points[-1][1] >= events and self._is_done():
                return
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"The contestant did not process all events:\n{self.log.read_text()[-3000:]}")
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
    """Returns the events of arrivals and receives, or of other topics, up to the last batch that Spark committed."""
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
    """Returns the resident memory of a process and all of its descendants."""
    page = os.sysconf("SC_PAGE_SIZE")
    return sum(int(fields[21]) * page for _, fields in _family(pid))


def cpu_seconds(pid: int) -> dict[str, float]:
    """Returns the CPU time of a process and all of its descendants, in seconds, by the name of their program."""
    ticks = os.sysconf("SC_CLK_TCK")
    found: dict[str, float] = {}
    for name, fields in _family(pid):
        found[name] = found.get(name, 0.0) + (int(fields[11]) + int(fields[12])) / ticks
    return found


def _family(pid: int) -> list[tuple[str, list[str]]]:
    """Returns the name of each process, and the fields behind it in its /proc/PID/stat."""
    children: dict[int, list[int]] = {}
    processes: dict[int, tuple[str, list[str]]] = {}
    # A glob of two parts looks into each folder, and fails if a process has ended by then.
    for stat in (process / "stat" for process in Path("/proc").glob("[0-9]*")):
        try:
            before, _, after = stat.read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        one, fields = int(stat.parent.name), after.split()
        children.setdefault(int(fields[1]), []).append(one)
        processes[one] = before.partition("(")[2], fields
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        if one in processes:
            found.append(processes[one])
        waiting += children.get(one, [])
    return found
