"""The demo of queues, with both kinds of activation. It ends by itself with a summary.

External activation: the activator starts reader programs for notifications. Internal activation: the monitor asks for
tasks, up to max_queue_readers at a time, and the host runs them. Activator and host run the same reader program here.
"""

import json
import sys
import time
from dataclasses import dataclass

from rich.console import Console

from producers.producer import Message, QueueProducer
from producers.queue_topics import create_queue_topics
from streaming.cli.demo.stage import Actor, play, set_up
from streaming.cli.demo.starters import Reader
from streaming.cli.demo.story import Story
from streaming.cli.monitor_process import monitor_process
from streaming.kafka.clients import Cluster
from streaming.wire.topics import Topics


@dataclass(frozen=True)
class DemoQueue:
    """A queue of the demo.

    Attributes:
        name: The name of the queue and of its topic.
        partitions: The partitions of its topic: the most readers that can receive at a time.
        max_queue_readers: The most tasks at a time under internal activation; None: external activation.
        work_s: The time that a reader works on a message, in seconds.
        bursts: The seconds after the beginning at which bursts begin.
        sendings: (second, messages): seconds after the beginning, and the number of messages that are sent then.
    """

    name: str
    partitions: int
    max_queue_readers: int | None
    work_s: float
    bursts: tuple[float, ...] = ()
    sendings: tuple[tuple[float, int], ...] = ()

    @property
    def procedure_name(self) -> str | None:
        """Returns the name of the procedure that internal activation starts for the queue; None without it."""
        return None if self.max_queue_readers is None else f"read_{self.name}"

    def reader(self) -> Reader:
        """Returns the program that reads the queue."""
        words = [sys.executable, "-m", "streaming", "read", "{queue}", "--max-messages", "5", "--wait", "3s"]
        return Reader(self.name, [*words, "--work-seconds", str(self.work_s)], self.partitions, self.procedure_name)


# One reader is too slow for a burst. But where readers start slowly, it has read all before a second one comes. So a
# burst of FIRST messages goes on, with MORE whenever fewer than FEW are left, until two readers have received some.
FIRST, FEW, MORE = 70, 15, 20
_LOOK_S = 0.25
# Bursts, a trickle, and single messages after quiet times. In between, no reader runs.
QUEUES = (
    DemoQueue("orders", 2, None, 0.15, bursts=(1.0, 34.0)),
    DemoQueue("payments", 2, 2, 0.15, bursts=(3.0,), sendings=((38.0, 20),)),
    DemoQueue("invoices", 1, None, 0.05, sendings=((4.0, 1), (7.0, 1), (10.0, 1), (13.0, 1), (40.0, 3), (46.0, 3))),
    DemoQueue("alerts", 1, 1, 0.05, sendings=((8.0, 1), (26.0, 1), (50.0, 1))),
)
TOPICS = Topics()
# Messages of one conversation group stay in order and in one partition.
CONVERSATION_GROUPS = 16


def run(console: Console, *, keeps: bool = False) -> int:
    """Runs the demo; returns 0 if every message that was sent was read.

    Args:
        console: The output.
        keeps: Whether the demo goes on until a signal.

    Raises:
        UserError: Java or the jars are missing, or a part of the demo does not start.
    """
    headline = "[bold]queue-activation demo[/]: readers start when one more would have useful work"
    with set_up(console, headline, keeps=keeps) as stage:
        _create_queues(stage.cluster)
        with stage.progress("starting the monitor (Spark)"):
            servers = stage.cluster.bootstrap_servers
            monitor = stage.parts.enter_context(monitor_process(servers, stage.folder))
        story = Story(console)
        return play(stage, story, [_Sender(stage.cluster, story)], [monitor], [queue.reader() for queue in QUEUES])


def _create_queues(cluster: Cluster) -> None:
    """Creates the topics of all queues, and definitions of the queues with internal activation."""
    commands = cluster.producer()
    for queue in QUEUES:
        create_queue_topics(cluster.bootstrap_servers, [queue.name], partitions=queue.partitions, replication_factor=1)
        if queue.procedure_name is not None:
            clause = {"procedure_name": queue.procedure_name, "max_queue_readers": queue.max_queue_readers}
            command = {"type": "CREATE_QUEUE", "queue": queue.name, "activation": clause}
            commands.produce(TOPICS.commands, key=queue.name, value=json.dumps(command))
    commands.flush(10)


class _Sender(Actor):
    """Sends the messages of all queues at their scheduled times, and goes on with bursts."""

    def __init__(self, cluster: Cluster, story: Story) -> None:
        super().__init__("sender")
        self._story = story
        self._producer = QueueProducer(cluster.bootstrap_servers)

    def _act(self) -> None:
        bursts = [(at_s, queue.name, FIRST, True) for queue in QUEUES for at_s in queue.bursts]
        others = [(at_s, queue.name, count, False) for queue in QUEUES for at_s, count in queue.sendings]
        begin_s = time.monotonic()
        with self._producer:
            for at_s, queue, count, is_burst in sorted(bursts + others):
                while (left_s := begin_s + at_s - time.monotonic()) > 0:
                    self._go_on(left_s)
                if is_burst:
                    self._story.begin_burst(queue)
                self._send(queue, count)
            while self._story.open_bursts():
                self._go_on()

    def _go_on(self, most_s: float = _LOOK_S) -> None:
        """Waits a moment, and sends more messages of bursts if necessary."""
        self.pause(min(most_s, _LOOK_S))
        for queue in self._story.open_bursts():
            if self._story.left(queue) < FEW:
                self._send(queue, MORE)

    def _send(self, queue: str, count: int) -> None:
        first = self._story.sent[queue] + 1
        self._producer.send_many(
            Message(queue, f"{queue} {first + number}".encode(), f"group-{number % CONVERSATION_GROUPS}")
            for number in range(count)
        )
        self._story.sent[queue] += count
