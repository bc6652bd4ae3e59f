"""The stage of all demos: their brokers, their threads, and the loop that starts readers and prints the timeline."""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.text import Text

from streaming.cli.demo.starters import Reader, Starters
from streaming.cli.demo.timeline import Timeline, print_line
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system import hints, start_progress, stop_signals
from streaming.system.embedded_broker import EmbeddedBroker
from streaming.system.jars import broker_jars
from streaming.system.processes import ChildProcess
from streaming.system.relay import Relay
from streaming.system.threads import WatchedThread
from streaming.wire.topics import Topics

# The longest time from the first message to the end of a story, which usually takes about a minute.
_RUN_TIMEOUT_S = 150.0
# A story may also take this many times as long as the start of its programs. On an idle machine with two cores it takes
# about as long as five starts.
_STARTS = 6
_STEP_S = 0.02
# The interval at which an actor checks the condition that it waits for.
_POLL_S = 0.05


@dataclass
class Stage:
    """The parts of a demo.

    Attributes:
        console: The demo's output.
        folder: A folder for files, which is deleted at the end.
        parts: The resources that are closed at the end.
        keeps: Whether the programs run on after the end of the story, until a signal.
        clusters: The demo's Kafka clusters.
        slowest_s: The time that the slowest part took to start.
    """

    console: Console
    folder: Path
    parts: ExitStack
    keeps: bool
    clusters: list[Cluster] = field(default_factory=list)
    slowest_s: float = 0.0

    @property
    def cluster(self) -> Cluster:
        """Returns the first Kafka cluster."""
        return self.clusters[0]

    @contextmanager
    def progress(self, what: str) -> Iterator[None]:
        """Prints the name of the block's work, every few seconds that it goes on, and then the time that it took."""
        begin_s = time.monotonic()
        self.console.print(f"  {what} ...", end="")
        with start_progress.told_again(what, lambda line: self.console.print(f"\n  {line}", end="")):
            yield
        took_s = time.monotonic() - begin_s
        self.slowest_s = max(self.slowest_s, took_s)
        gap = " " if took_s < start_progress.AGAIN_S else "\n  "
        self.console.print(f"{gap}ready after {took_s:.1f} s")


@contextmanager
def brokers(
    console: Console, headline: str, relays: Sequence[Relay | None] = (None,), *, keeps: bool = False
) -> Iterator[Stage]:
    """Starts a Kafka broker for each relay; ends everything at the end of the block.

    Args:
        console: The demo's output.
        headline: The first line of the output.
        relays: For each broker its relay, or None.
        keeps: Whether `play` lets the programs run until a signal.

    Raises:
        UserError: Java or the jars are missing, or a broker does not start.
    """
    with tempfile.TemporaryDirectory(prefix="queue-activation-demo-") as folder, ExitStack() as parts:
        console.print(f"{headline}\n")
        broker_jars()  # the line of the broker would otherwise be broken by the progress of fetching them
        stage = Stage(console, Path(folder), parts, keeps)
        with stage.progress(f"starting {'a Kafka broker' if len(relays) == 1 else 'two Kafka brokers'}"):
            for relay in relays:
                broker = parts.enter_context(EmbeddedBroker(relay=relay))
                stage.clusters.append(Cluster(broker.bootstrap_servers))
        try:
            yield stage
        finally:
            if stop_signals.is_asked():
                console.print("\nstopping all programs ...")


@contextmanager
def set_up(console: Console, headline: str, *, keeps: bool = False) -> Iterator[Stage]:
    """Starts a Kafka broker with the monitor's topics, and the dashboard; otherwise like `brokers`."""
    with brokers(console, headline, keeps=keeps) as stage:
        Admin(stage.cluster).create_topics(Topics().specs(), partitions=2, replication_factor=1)
        if (address := stage.parts.enter_context(dashboard(stage.cluster))) is not None:
            console.print(f"  the dashboard shows what happens and why: {address}")
        yield stage


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
        """Waits; ends the actor if the demo is over."""
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
    actors: Sequence[Actor],
    programs: Sequence[ChildProcess],
    readers: Sequence[Reader] = (),
) -> int:
    """Runs the actors, starts readers, and prints the timeline and the summary.

    Args:
        stage: The demo's parts.
        timeline: Prints the events and the summary.
        actors: The threads of the story.
        programs: The programs that must run all the time.
        readers: The reader programs.

    Returns:
        The exit code of the demo: 0 if everything happened in time and as expected.

    Raises:
        UserError: One of the programs has ended.
        Exception: An actor has failed.
    """
    is_complete = False
    with stop_signals.taken() as signals, ExitStack() as parts:
        followers = [
            parts.enter_context(TopicFollower(cluster, [*topics], Start.END))
            for cluster, topics in zip(stage.clusters, timeline.topics, strict=True)
        ]
        starters = Starters(stage.cluster, readers, stage.folder, timeline, stage.parts)
        # A signal in the middle of a step could leave a reader behind.
        signals.only_note()
        for actor in actors:
            actor.start()
        timeline.begin()
        deadline_s = time.monotonic() + max(_RUN_TIMEOUT_S, _STARTS * stage.slowest_s)
        try:
            while not is_complete and time.monotonic() < deadline_s:
                signals.check()
                for actor in actors:
                    actor.check()
                starters.step()
                for follower in followers:
                    _show(follower, timeline)
                timeline.step()
                starters.tell()
                for program in programs:
                    program.require_running()
                is_over = not timeline.is_anybody_there and not any(actor.is_alive() for actor in actors)
                is_complete = is_over and timeline.is_complete()
        finally:
            for actor in actors:
                actor.is_over.set()
            for actor in actors:
                actor.join(stop_signals.GRACE_S if stop_signals.is_asked() else None)
        if not is_complete:
            timeline.gave_up()
        is_good = timeline.summarize()
        if is_complete and stage.keeps:
            _keep(stage, starters, signals, readers[0].queue)
    return 0 if is_complete and is_good else 1


def _keep(stage: Stage, starters: Starters, signals: stop_signals.StopSignals, queue: str) -> None:
    """Starts readers until a signal, without lines about them."""
    send = hints.command("send", queue, "a message", servers=stage.cluster.bootstrap_servers)
    runs_on = "All programs run until Ctrl-C, but the demo sends and prints nothing more."
    print_line(stage.console, Text(f"\n{runs_on} To send a message, and see it on the dashboard: `{send}`"))
    while not signals.stop.is_set():
        starters.step()


def _show(follower: TopicFollower, timeline: Timeline) -> None:
    """Gives the timeline the records of a step."""
    until_s = time.monotonic() + _STEP_S
    while (left_s := until_s - time.monotonic()) > 0:
        message = follower.poll(left_s)
        if message is not None:
            timeline.saw(message)
