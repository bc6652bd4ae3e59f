"""The demo: runs all parts on this machine, with both kinds of activation, and ends by itself with a summary.

External activation: the activator starts reader programs for notifications. Internal activation: the monitor asks for
tasks, up to max_queue_readers at a time, and the host runs them. Both run the same reader program here.
"""

import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from producers.producer import Message, QueueProducer
from producers.queue_topics import create_queue_topics
from streaming.cli.demo.starters import DemoQueue, Starters
from streaming.cli.demo.story import Story
from streaming.cli.monitor_process import monitor_process
from streaming.errors import UserError
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system import stop_signals
from streaming.system.embedded_broker import EmbeddedBroker
from streaming.system.processes import ChildProcess
from streaming.system.threads import WatchedThread
from streaming.wire.topics import Topics

READY_TIMEOUT_S = 90.0
# From the first message to the end. Usually everything is read after about a minute.
RUN_TIMEOUT_S = 100.0

# Bursts that one reader is too slow for, a trickle, and single messages after quiet times. In between, no reader runs.
QUEUES = (
    DemoQueue("orders", 2, None, 0.15, ((1.0, 70), (34.0, 70))),
    DemoQueue("payments", 2, 2, 0.15, ((3.0, 70), (38.0, 20))),
    DemoQueue("invoices", 1, None, 0.05, ((4.0, 1), (7.0, 1), (10.0, 1), (13.0, 1), (40.0, 3), (46.0, 3))),
    DemoQueue("alerts", 1, 1, 0.05, ((8.0, 1), (26.0, 1), (50.0, 1))),
)
TOPICS = Topics()
# Messages of one conversation group stay in order and in one partition.
CONVERSATION_GROUPS = 16


def run(console: Console) -> int:
    """Runs the demo; returns 0 if every message that was sent was read.

    Raises:
        UserError: Java or the jars are missing, or a part of the demo does not start.
    """
    with tempfile.TemporaryDirectory(prefix="queue-activation-demo-") as folder, contextlib.ExitStack() as parts:
        console.print("[bold]queue-activation demo[/]: readers start when one more would have useful work\n")
        with _progress(console, "starting a Kafka broker"):
            broker = parts.enter_context(EmbeddedBroker())
        cluster = Cluster(broker.bootstrap_servers, {})
        Admin(cluster).create_topics(TOPICS.specs(), partitions=2, replication_factor=1)
        _create_queues(cluster)
        with _progress(console, "starting the monitor (Spark)"):
            monitor = parts.enter_context(monitor_process(cluster.bootstrap_servers, Path(folder), READY_TIMEOUT_S))
        story = Story(console)
        is_complete = _tell(cluster, story, monitor, Path(folder))
        story.summarize()
        return 0 if is_complete else 1


def _create_queues(cluster: Cluster) -> None:
    """Creates the topics of all queues, and definitions for internal activation. The other queues need none."""
    commands = cluster.producer()
    for queue in QUEUES:
        create_queue_topics(cluster.bootstrap_servers, [queue.name], partitions=queue.partitions, replication_factor=1)
        if queue.max_queue_readers is not None:
            clause = {"procedure_name": queue.procedure_name, "max_queue_readers": queue.max_queue_readers}
            command = {"type": "CREATE_QUEUE", "queue": queue.name, "activation": clause}
            commands.produce(TOPICS.commands, key=queue.name, value=json.dumps(command))
    commands.flush(10)


def _tell(cluster: Cluster, story: Story, monitor: ChildProcess, folder: Path) -> bool:
    """Sends and reads everything; returns whether all messages were read in time."""
    topics = [TOPICS.arrivals, TOPICS.receives, TOPICS.activations, TOPICS.tasks]
    is_over = threading.Event()
    sender = _Sender(cluster, is_over)
    with (
        stop_signals.taken() as signals,
        TopicFollower(cluster, topics, Start.END) as follower,
        Starters(cluster, QUEUES, folder, story) as starters,
    ):
        # A signal in the middle of a step could leave a reader behind.
        signals.only_note()
        sender.start()
        story.begin()
        deadline_s = time.monotonic() + RUN_TIMEOUT_S
        try:
            while time.monotonic() < deadline_s:
                signals.check()
                sender.check()
                starters.step()
                for message in iter(lambda: follower.poll(0.02), None):
                    story.saw(message)
                starters.tell()
                if monitor.poll() is not None:
                    raise UserError(f"The monitor ended with exit code {monitor.poll()}")
                if not sender.is_alive() and not story.is_anybody_there and story.is_all_read(sender.sent):
                    return True
        finally:
            is_over.set()
            sender.join(stop_signals.GRACE_S if stop_signals.is_asked() else None)
        story.gave_up(sender.sent)
        return False


class _Sender(WatchedThread):
    """Sends the messages of all queues at their scheduled times; `sent` is the number sent so far."""

    def __init__(self, cluster: Cluster, is_over: threading.Event) -> None:
        super().__init__("sender", self._send)
        self.sent = 0
        self._is_over = is_over
        self._producer = QueueProducer(cluster.bootstrap_servers)

    def _send(self) -> None:
        sendings = sorted((at_s, queue.name, count) for queue in QUEUES for at_s, count in queue.sendings)
        begin_s = time.monotonic()
        with self._producer as producer:
            for at_s, queue, count in sendings:
                if self._is_over.wait(max(0.0, begin_s + at_s - time.monotonic())):
                    return
                producer.send_many(
                    Message(
                        queue, f"{queue} {self.sent + number + 1}".encode(), f"group-{number % CONVERSATION_GROUPS}"
                    )
                    for number in range(count)
                )
                self.sent += count


@contextmanager
def _progress(console: Console, what: str) -> Iterator[None]:
    begin_s = time.monotonic()
    console.print(f"  {what} ...", end="")
    yield
    console.print(f" ready after {time.monotonic() - begin_s:.1f} s")
