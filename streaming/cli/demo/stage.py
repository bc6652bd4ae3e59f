"""The parts of a demo that all demos share: their start, and the loop in which readers start and the timeline grows."""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from streaming.cli.demo.starters import Reader, Starters
from streaming.cli.demo.timeline import Timeline
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system import stop_signals
from streaming.system.embedded_broker import EmbeddedBroker
from streaming.system.jars import broker_jars
from streaming.system.processes import ChildProcess
from streaming.system.threads import WatchedThread
from streaming.wire.topics import Topics

_STEP_S = 0.02
# How often an actor looks at what it waits for.
_POLL_S = 0.05
# The longest story is this many times as long as the start of its programs. On an idle machine with two cores it takes
# about as long as five starts.
_STARTS = 6


@dataclass(frozen=True)
class Stage:
    """The parts of a demo.

    Attributes:
        console: The demo's output.
        cluster: Its Kafka cluster, with the topics that the monitor needs.
        folder: A folder, which is deleted at the end.
        parts: What is stopped at the end.
        keeps: Whether everything stays until a signal.
    """

    console: Console
    cluster: Cluster
    folder: Path
    parts: ExitStack
    keeps: bool = False

    @contextmanager
    def progress(self, what: str) -> Iterator["Took"]:
        """Says what happens in the block, and then how long it took."""
        with progress(self.console, what) as took:
            yield took


@contextmanager
def set_up(console: Console, headline: str, *, keeps: bool = False) -> Iterator[Stage]:
    """Starts a Kafka broker with the monitor's topics, and the dashboard; ends everything at the end of the block.

    Args:
        console: The demo's output.
        headline: What the demo shows.
        keeps: Whether `play` goes on until a signal.

    Raises:
        UserError: Java or the jars are missing, or the broker does not start.
    """
    with tempfile.TemporaryDirectory(prefix="queue-activation-demo-") as folder, ExitStack() as parts:
        console.print(f"{headline}\n")
        broker_jars()  # the line of the broker would otherwise be broken by the progress of fetching them
        with progress(console, "starting a Kafka broker"):
            broker = parts.enter_context(EmbeddedBroker())
        cluster = Cluster(broker.bootstrap_servers, {})
        Admin(cluster).create_topics(Topics().specs(), partitions=2, replication_factor=1)
        if (address := parts.enter_context(dashboard(cluster))) is not None:
            console.print(f"  the dashboard shows what happens and why: {address}")
        yield Stage(console, cluster, Path(folder), parts, keeps)


@contextmanager
def dashboard(cluster: Cluster) -> Iterator[str | None]:
    """Serves the dashboard while the block runs, and yields its address; None if its packages are not installed."""
    try:
        from streaming.cli.dashboard.address import Address
        from streaming.cli.dashboard.web_server import Served, listen_on_default
    except ModuleNotFoundError:
        yield None
        return
    address = Address()
    with listen_on_default(address) as listening, Served(cluster, Topics(), address, listening) as served:
        yield served.url


class _IsOverError(Exception):
    """Ends an actor that has not done everything."""


class Actor(WatchedThread):
    """A thread that acts at certain times, until it is done or the demo is over. A subclass defines `_act`.

    Attributes:
        is_over: Ends the actor's next pause, and the actor.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, self._act_until_over)
        self.is_over = threading.Event()

    def pause(self, seconds: float) -> None:
        """Waits."""
        if self.is_over.wait(max(0.0, seconds)):
            raise _IsOverError

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Waits until a condition is true."""
        while not condition():
            self.pause(_POLL_S)

    def _act(self) -> None:
        raise NotImplementedError

    def _act_until_over(self) -> None:
        with suppress(_IsOverError):
            self._act()


def play(
    stage: Stage,
    timeline: Timeline,
    readers: Sequence[Reader],
    actors: Sequence[Actor],
    programs: Sequence[ChildProcess],
    is_complete: Callable[[], bool],
    timeout_s: float,
) -> bool:
    """Runs the actors, starts readers, and shows what is in the topics.

    Args:
        stage: The demo's parts.
        timeline: Shows the events.
        readers: The reader programs.
        actors: The threads that make things happen.
        programs: The programs that must not end before.
        is_complete: Returns whether everything has happened. Asked when all actors are done.
        timeout_s: The longest time for it.

    Returns:
        Whether everything happened in time.

    Raises:
        UserError: One of the programs has ended.
        Exception: That of an actor.
    """
    with (
        stop_signals.taken() as signals,
        TopicFollower(stage.cluster, [*timeline.topics], Start.END) as follower,
        Starters(stage.cluster, readers, stage.folder, timeline) as starters,
    ):
        # A signal in the middle of a step could leave a reader behind.
        signals.only_note()
        for actor in actors:
            actor.start()
        timeline.begin()
        deadline_s = time.monotonic() + timeout_s
        try:
            while time.monotonic() < deadline_s:
                signals.check()
                for actor in actors:
                    actor.check()
                starters.step()
                _show(follower, timeline)
                timeline.step()
                starters.tell()
                for program in programs:
                    program.require_running()
                is_done = not any(actor.is_alive() for actor in actors)
                if is_done and not timeline.is_anybody_there and is_complete():
                    _keep(stage, starters, signals)
                    return True
        finally:
            for actor in actors:
                actor.is_over.set()
            for actor in actors:
                actor.join(stop_signals.GRACE_S if stop_signals.is_asked() else None)
        return False


def _keep(stage: Stage, starters: Starters, signals: stop_signals.StopSignals) -> None:
    """Goes on starting readers until a signal, if everything stays."""
    if stage.keeps:
        stage.console.print(f"everything goes on until Ctrl-C. Kafka is at {stage.cluster.bootstrap_servers}")
    while stage.keeps and not signals.stop.is_set():
        starters.step()


def _show(follower: TopicFollower, timeline: Timeline) -> None:
    """Shows the timeline what comes within a step."""
    until_s = time.monotonic() + _STEP_S
    while (left_s := until_s - time.monotonic()) > 0:
        message = follower.poll(left_s)
        if message is not None:
            timeline.saw(message)


@dataclass
class Took:
    """The time that a step of the set-up took, once it is done."""

    seconds: float = 0.0

    def longest_s(self, usual_s: float) -> float:
        """Returns the longest time for a story: longer than usual where the start took long, too."""
        return max(usual_s, _STARTS * self.seconds)


@contextmanager
def progress(console: Console, what: str) -> Iterator[Took]:
    """Says what happens in the block, and then how long it took."""
    begin_s, took = time.monotonic(), Took()
    console.print(f"  {what} ...", end="")
    yield took
    took.seconds = time.monotonic() - begin_s
    console.print(f" ready after {took.seconds:.1f} s")
