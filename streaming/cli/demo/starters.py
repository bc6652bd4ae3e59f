"""The start of readers in the demos: an activator for notifications, a host for tasks of internal activation."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from streaming.cli.demo.timeline import Timeline
from streaming.core.activation.start_decisions import Action
from streaming.daemons.activator.service import Activator
from streaming.daemons.activator.settings import ActivatorEvent, ActivatorSettings
from streaming.daemons.host.task_changes import TaskChange, TaskEvent
from streaming.daemons.host.task_host import HostSettings, TaskHost
from streaming.kafka.clients import Cluster

# How long the activator, and then the host, waits in a step.
_STEP_S = 0.02
# The timeline may see a record a little later than the activator and the host, which act on it.
_TELL_AFTER_S = 0.1
# The output of all readers, in the demo's folder.
READERS_LOG = "readers.log"


@dataclass(frozen=True)
class Reader:
    """A reader program.

    Attributes:
        queue: The queue that it reads.
        command: The command line, in which `{queue}` stands for the queue.
        most: The largest number of such programs at a time.
        procedure_name: The procedure of internal activation that the host runs; None: the activator starts the program.
        is_plain: Whether it reports nothing. Then the observer watches its consumer group, which has the queue's name.
    """

    queue: str
    command: list[str]
    most: int
    procedure_name: str | None = None
    is_plain: bool = False


class Starters:
    """The activator and the host, in this process. The timeline prints their starts and exits of readers."""

    def __init__(
        self, cluster: Cluster, readers: Sequence[Reader], folder: Path, timeline: Timeline, parts: ExitStack
    ) -> None:
        """Writes the configuration files, and starts the activator and the host, each if it has a program.

        Args:
            cluster: The Kafka cluster.
            readers: The programs to start.
            folder: The folder, also for the activator's state and the output of the readers.
            timeline: Receives the starts and exits of readers.
            parts: Stops the activator and the host at its end.
        """
        self._timeline = timeline
        self._news: list[tuple[float, Callable[[], None]]] = []
        self._starters: list[Activator | TaskHost] = []
        # Closed without an error, so that the activator stops its programs also after Ctrl-C.
        stopped = ExitStack()
        parts.callback(stopped.close)
        activator_config, host_config = write_configs(readers, folder)
        if any(reader.procedure_name is None for reader in readers):
            settings = ActivatorSettings(cluster, activator_config, folder / "activator", stop_programs=True)
            activator = Activator(settings, lambda event: self._activator_says(event, activator.running))
            self._starters.append(stopped.enter_context(activator))
        if any(reader.procedure_name is not None for reader in readers):
            host = TaskHost(HostSettings(cluster, host_config), lambda _line: None, self._host_says)
            self._starters.append(stopped.enter_context(host))

    def step(self) -> None:
        """Runs a step of the activator and a step of the host."""
        for starter in self._starters:
            starter.step(_STEP_S)

    def tell(self) -> None:
        """Tells the timeline of starts and exits, after it has seen the records that caused them."""
        until_s = time.monotonic() - _TELL_AFTER_S
        while self._news and self._news[0][0] <= until_s:
            _, news = self._news.pop(0)
            news()

    def _activator_says(self, event: ActivatorEvent, running: Mapping[str, int]) -> None:
        if event.what == Action.START and event.queue is not None:
            session_id = next(session for session, pid in running.items() if pid == event.pid)
            started = partial(self._timeline.reader_started, event.queue, session_id, event.pid, "by the activator")
            self._note(started)
        elif event.what == Action.EXIT:
            self._note(partial(self._timeline.reader_left, event.pid))
        elif event.what in (Action.HOLD, Action.DROP) and event.queue is not None:
            self._note(partial(self._timeline.no_reader_started, event.queue, f"{event.what}: {event.why}"))

    def _host_says(self, change: TaskChange) -> None:
        if change.what is TaskEvent.STARTED:
            task = change.task
            started = partial(self._timeline.reader_started, task.queue, task.task_id, change.process_id, "by the host")
            self._note(started)
        elif change.what is TaskEvent.EXITED:
            self._note(partial(self._timeline.reader_left, change.process_id))

    def _note(self, news: Callable[[], None]) -> None:
        self._news.append((time.monotonic(), news))


def write_configs(readers: Sequence[Reader], folder: Path) -> tuple[Path, Path]:
    """Writes the activator's and the host's configuration files, unless they exist; returns their paths."""
    activator, host = [], []
    for reader in readers:
        # A JSON string or list of strings is also valid TOML.
        how = f"command = {json.dumps(reader.command)}\nlog_file = {json.dumps(str(folder / READERS_LOG))}\n"
        if reader.procedure_name is None:
            key = "group" if reader.is_plain else "queue"
            activator.append(f'[[programs]]\n{key} = "{reader.queue}"\nmax = {reader.most}\n{how}')
        else:
            host.append(f'[[procedures]]\nname = "{reader.procedure_name}"\n{how}')
    files = folder / "activator.toml", folder / "host.toml"
    for file, entries in zip(files, (activator, host), strict=True):
        if not file.exists():  # an observer may be reading it
            file.write_text("\n".join(entries))
    return files
