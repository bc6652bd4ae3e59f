"""Who starts readers in the demo: the activator for notifications, the host for tasks of internal activation."""

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

# Each waits for so long in a step, one after the other.
_STEP_S = 0.02


@dataclass(frozen=True)
class DemoQueue:
    """A queue of the demo.

    Attributes:
        name: Its name, and its topic's.
        partitions: At most so many readers can receive at a time.
        max_queue_readers: So many tasks may run, with internal activation; None: external activation.
        work_s: How long the work on a message takes its reader.
        sendings: (second, messages): so many messages are sent so many seconds after the begin.
    """

    name: str
    partitions: int
    max_queue_readers: int | None
    work_s: float
    sendings: tuple[tuple[float, int], ...]

    @property
    def procedure_name(self) -> str:
        """What its activation starts, with internal activation."""
        return f"read_{self.name}"


class Starters:
    """The activator and the host, in this process, telling the story what they do. A context manager."""

    def __init__(self, cluster: Cluster, queues: tuple[DemoQueue, ...], folder: Path, story: Story) -> None:
        """Writes their configuration files into the folder.

        Args:
            cluster: Where Kafka is.
            queues: The queues they start readers for.
            folder: Also gets the activator's state, and what the readers print.
            story: Is told of readers that come and go.
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
        """Lets both do what there is to do."""
        self._activator.step(_STEP_S)
        self._host.step(_STEP_S)

    def tell(self) -> None:
        """Tells the story what they did; the story should first have seen the records that made them do it."""
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
    """The activator's and the host's."""
    activator, host = [], []
    for queue in queues:
        words = [sys.executable, "-m", "streaming", "read", "{queue}", "--max-messages", "5", "--wait", "3s"]
        words += ["--work-seconds", str(queue.work_s)]
        # A JSON string or list of strings is TOML too.
        how = f"command = {json.dumps(words)}\nlog_file = {json.dumps(str(folder / 'readers.log'))}\n"
        if queue.max_queue_readers is None:
            activator.append(f'[[programs]]\nqueue = "{queue.name}"\nmax = {queue.partitions}\n{how}')
        else:
            host.append(f'[[procedures]]\nname = "{queue.procedure_name}"\n{how}')
    files = folder / "activator.toml", folder / "host.toml"
    for file, entries in zip(files, (activator, host), strict=True):
        file.write_text("\n".join(entries))
    return files
