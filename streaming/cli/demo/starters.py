"""Starts readers in the demo: the activator for notifications, the host for tasks of internal activation."""

import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from streaming.cli.demo.story import Story
from streaming.core.activation.program_starts import Action
from streaming.daemons.activator.service import Activator
from streaming.daemons.activator.settings import ActivatorEvent, ActivatorSettings
from streaming.daemons.host.task_host import HostSettings, TaskChange, TaskEvent, TaskHost
from streaming.kafka.clients import Cluster

# How long the activator, and then the host, waits in a step.
_STEP_S = 0.02


@dataclass(frozen=True)
class DemoQueue:
    """A queue of the demo.

    Attributes:
        name: The name of the queue and of its topic.
        partitions: The partitions of its topic: the most readers that can receive at a time.
        max_queue_readers: The most tasks at a time under internal activation; None: external activation.
        work_s: How long a reader works on a message.
        sendings: (second, messages): seconds after the beginning, and the number of messages that are sent then.
    """

    name: str
    partitions: int
    max_queue_readers: int | None
    work_s: float
    sendings: tuple[tuple[float, int], ...]

    @property
    def procedure_name(self) -> str:
        """Returns the name of the procedure that internal activation starts for the queue."""
        return f"read_{self.name}"


class Starters:
    """The activator and the host, in this process; they report what they do to the story. A context manager."""

    def __init__(self, cluster: Cluster, queues: tuple[DemoQueue, ...], folder: Path, story: Story) -> None:
        """Writes their configuration files into the folder.

        Args:
            cluster: The Kafka cluster.
            queues: The queues to start readers for.
            folder: The folder, also for the activator's state and the output of the readers.
            story: Receives the starts and exits of readers.
        """
        self._story = story
        activator_config, host_config = _write_configs(queues, folder)
        settings = ActivatorSettings(cluster, activator_config, folder / "activator", stop_programs=True)
        self._activator = Activator(settings, self._activator_says)
        self._host = TaskHost(HostSettings(cluster, host_config), lambda _line: None, self._host_says)
        self._both = ExitStack()
        self._news: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        with ExitStack() as both:
            both.enter_context(self._activator)
            both.enter_context(self._host)
            self._both = both.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._both.close()

    def step(self) -> None:
        """Runs a step of the activator and a step of the host."""
        self._activator.step(_STEP_S)
        self._host.step(_STEP_S)

    def tell(self) -> None:
        """Tells the story what both did. Call it after the story has seen the records that caused it."""
        for news in self._news:
            news()
        self._news.clear()

    def _activator_says(self, event: ActivatorEvent) -> None:
        if event.what == Action.START and event.queue is not None:
            session_id = next(session for session, pid in self._activator.running.items() if pid == event.pid)
            self._news.append(
                partial(self._story.reader_started, event.queue, session_id, event.pid, "by the activator")
            )
        elif event.what == Action.EXIT:
            self._news.append(partial(self._story.reader_left, event.pid))

    def _host_says(self, change: TaskChange) -> None:
        if change.what is TaskEvent.STARTED:
            task = change.task
            self._news.append(
                partial(self._story.reader_started, task.queue, task.task_id, change.process_id, "by the host")
            )
        elif change.what is TaskEvent.EXITED:
            self._news.append(partial(self._story.reader_left, change.process_id))


def _write_configs(queues: tuple[DemoQueue, ...], folder: Path) -> tuple[Path, Path]:
    """Writes the activator's and the host's configuration files, and returns their paths."""
    activator, host = [], []
    for queue in queues:
        words = [sys.executable, "-m", "streaming", "read", "{queue}", "--max-messages", "5", "--wait", "3s"]
        words += ["--work-seconds", str(queue.work_s)]
        # A JSON string or list of strings is also valid TOML.
        how = f"command = {json.dumps(words)}\nlog_file = {json.dumps(str(folder / 'readers.log'))}\n"
        if queue.max_queue_readers is None:
            activator.append(f'[[programs]]\nqueue = "{queue.name}"\nmax = {queue.partitions}\n{how}')
        else:
            host.append(f'[[procedures]]\nname = "{queue.procedure_name}"\n{how}')
    files = folder / "activator.toml", folder / "host.toml"
    for file, entries in zip(files, (activator, host), strict=True):
        file.write_text("\n".join(entries))
    return files
