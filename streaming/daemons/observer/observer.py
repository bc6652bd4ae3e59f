"""The observer: looks at consumer groups that report nothing, and reports whether their next reader would have work.

Each report contains the whole state of a group. So a killed observer loses nothing, and two observers invent nothing.
While an observer is silent, the answer is unknown.
"""

import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from threading import Event
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError

from streaming.core.observer.watched_group import Report
from streaming.daemons.activator.config import Config
from streaming.daemons.observer.counts import Counts
from streaming.daemons.observer.metrics import Metrics
from streaming.daemons.observer.settings import ObserverSettings
from streaming.daemons.observer.sole_observer import OBSERVER, READY
from streaming.daemons.observer.watched_groups import WatchedGroups
from streaming.daemons.query.sole_program import SoleProgram
from streaming.errors import UserError
from streaming.kafka.access import rights
from streaming.kafka.admin import Admin
from streaming.kafka.group_looks import GroupLooks
from streaming.kafka.phantom_probe import PhantomProbe
from streaming.kafka.session_event_reporter import SessionEventReporter
from streaming.system.client_ids import client_id
from streaming.system.metrics_server import MetricsServer
from streaming.system.toml_file import TomlFile
from streaming.wire.input_records import Observed
from streaming.wire.topics import Topics

_CONFIG_LOOK_INTERVAL_S = 1.0
# The pause after a look that Kafka has not answered.
_AGAIN_AFTER_S = 1.0
_FLUSH_TIMEOUT_S = 1.0


class Observer:
    """The observer of this process. A context manager; call `run`."""

    def __init__(self, settings: ObserverSettings, say: Callable[[str], None]) -> None:
        """Stores the settings. Entering the context starts the observer.

        Args:
            settings: The observer's settings.
            say: Prints a line.
        """
        self._settings = settings
        self._say = say
        self._topics = Topics(settings.topic_prefix)
        self._counts = Counts()
        self._is_ready = False
        self._looked_at_config_s = time.monotonic()
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        """Reads the config, connects, and waits until no other observer runs on the same topics.

        Raises:
            UserError: Invalid config, missing topic, or Kafka denies access or cannot be reached.
        """
        settings, topics = self._settings, self._topics
        self._config = TomlFile(settings.config_file, Config)
        with ExitStack() as resources:
            admin = Admin(settings.cluster)
            wanted = rights(reads=[topics.ticks], writes=[topics.receives])
            partitions = admin.require_topics(wanted)[topics.ticks]
            admin.require_group(topics.prefix + OBSERVER.group_id)
            if settings.metrics_port is not None:
                server = resources.enter_context(MetricsServer(settings.metrics_host, settings.metrics_port))
                resources.enter_context(Metrics(server, self._counts, settings.interval_ms))
            looks = GroupLooks(settings.cluster)
            resources.callback(looks.close)
            probe = PhantomProbe(settings.cluster)
            resources.callback(probe.close)
            self._reporter = SessionEventReporter(settings.cluster, topics.receives, {"enable.idempotence": True})
            resources.callback(self._reporter.close)
            self._groups = WatchedGroups(settings, looks, probe, self._counts, self._say)
            self._sole = resources.enter_context(
                SoleProgram(settings.cluster, admin, OBSERVER, topics.prefix, topics.ticks, partitions)
            )
            self._sole.join(f"observer-{uuid.uuid4()}", client_id(str(settings.config_file)))
            self._sole.wait()
            self._resources = resources.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._resources:
            if error is None:
                self._reporter.flush(_FLUSH_TIMEOUT_S if self._counts.problem is None else 0)

    def run(self, stop: Event) -> None:
        """Looks again and again, until `stop` is set.

        Raises:
            UserError: Another observer has taken this observer's place, or Kafka does not allow the reports.
        """
        due_s = time.monotonic()
        while not stop.is_set():
            self._counts.late_s += max(0.0, time.monotonic() - due_s)
            begin_s = time.monotonic()
            self._look()
            self._counts.look_s += time.monotonic() - begin_s
            pause_s = self._settings.interval_ms / 1000 if self._counts.problem is None else _AGAIN_AFTER_S
            due_s = begin_s + pause_s
            stop.wait(max(0.0, due_s - time.monotonic()))

    def _look(self) -> None:
        self._sole.check()
        self._reporter.poll()
        if self._reporter.denied is not None:
            raise self._reporter.denied
        counts = self._counts
        try:
            is_changed = self._is_config_new()  # may replace `current`
            reports = self._groups.look(self._config.current, is_changed=is_changed)
        except UserError as error:
            counts.failed += 1
            self._note_problem(str(error))
            return
        counts.looks += 1
        counts.looked_at_s = time.monotonic()
        self._note_problem(None)
        for queue, report in reports:
            self._send(queue, report)
        if not self._is_ready:
            self._is_ready = True
            self._say(READY)

    def _is_config_new(self) -> bool:
        """Reads the file again if it has changed. Returns whether the observer has a new config."""
        now_s = time.monotonic()
        if now_s - self._looked_at_config_s < _CONFIG_LOOK_INTERVAL_S:
            return False
        self._looked_at_config_s = now_s
        if not self._config.has_changed():
            return False
        try:
            self._config.reload()
        except UserError as error:
            self._say(f"config refused, the previous one stays: {error}")
            return False
        self._say("config reloaded")
        return True

    def _send(self, queue: str, report: Report) -> None:
        record = Observed(queue, report.unread, report.one_more, report.members, report.received)
        try:
            self._reporter.send(record, partial(self._answered, queue, report))
        except BufferError as error:
            self._answered(queue, report, error)

    def _answered(self, queue: str, report: Report, error: KafkaError | BufferError | None) -> None:
        if error is not None:
            self._counts.unsent += 1
            self._groups.not_sent(queue, report)
        else:
            self._counts.reports += 1

    def _note_problem(self, problem: str | None) -> None:
        """Says once that Kafka does not answer, and once that Kafka answers again."""
        before, self._counts.problem = self._counts.problem, problem
        if problem is not None and before is None:
            self._say(problem)
        elif problem is None and before is not None:
            self._say("Kafka answers again")
