"""The activator: follows notifications and the monitors view, and starts reader programs.

Each step decides in memory, records its decisions in one transaction, and only then acts: it opens the gates of started
programs, then lets the consumer group's offsets be committed. After a kill at any instant, the activator therefore
finds in its records each program that ran, and receives each unrecorded notification again.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from types import TracebackType
from typing import Self

from confluent_kafka import Message

from streaming.core.numbers import plural
from streaming.daemons.activator.config import Config
from streaming.daemons.activator.ended_sessions import EndedSessions
from streaming.daemons.activator.notifications import MonitorsView, Notifications
from streaming.daemons.activator.offset_retention import OffsetRetention
from streaming.daemons.activator.partitions import QueuePartitions
from streaming.daemons.activator.programs import AdoptedProgram, Exit, RunningProgram, stop_all
from streaming.daemons.activator.published_rows import Place, PublishedRows
from streaming.daemons.activator.queues import Queues
from streaming.daemons.activator.rows import Rows
from streaming.daemons.activator.settings import (
    DEFAULT_GROUP_ID,
    READY,
    SEEN_INTERVAL_S,
    ActivatorEvent,
    ActivatorSettings,
)
from streaming.daemons.activator.step import Step
from streaming.daemons.activator.store import Store, lock_state
from streaming.daemons.activator.without_entry import QueuesWithoutEntry
from streaming.daemons.activator.words import left_running
from streaming.errors import UserError
from streaming.kafka.access import rights
from streaming.kafka.admin import Admin
from streaming.system import hints, wall_clock
from streaming.system.logs import utf8
from streaming.system.paths import working_directory
from streaming.system.toml_file import TomlFile
from streaming.wire.input_records import SessionEnded
from streaming.wire.topics import Topics

_CONFIG_LOOK_INTERVAL_S = 1.0
_STOP_TIMEOUT_S = 10.0
_FLUSH_TIMEOUT_S = 1.0
# How long a step of `run` waits for a notification, and so the interval between checks of the programs.
_STEP_S = 0.2
_FORGET_INTERVAL_S = 3_600.0


class Activator:
    """The activator of this process. A context manager; call `run`, or `step` repeatedly."""

    def __init__(self, settings: ActivatorSettings, on_event: Callable[[ActivatorEvent], None]) -> None:
        """Stores the settings; entering the context starts the activator.

        Args:
            settings: The activator's settings.
            on_event: Called for each decision, and for other events that deserve a line in the log.
        """
        self._settings = settings
        self._on_event = on_event
        self._topics = Topics(settings.topic_prefix)
        self._programs: dict[str, tuple[str, RunningProgram]] = {}
        self._is_ready = False
        # Not an Event: a signal handler sets it, and the interrupted code may hold the Event's lock.
        self._is_config_asked = False
        self._looked_s = self._seen_s = self._forgot_s = time.monotonic()
        # Programs are timed by the monotonic clock, which setting the time of day does not affect.
        self._wall_minus_monotonic_s = time.time() - time.monotonic()
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        """Reads the config, locks and loads the state, reads the monitors view, and joins the consumer group.

        Raises:
            UserError: Invalid config, state in use, missing topic, or Kafka denies access or cannot be reached.
        """
        settings, cluster, topics = self._settings, self._settings.cluster, self._topics
        self._config = TomlFile(settings.config_file, Config)
        with ExitStack() as resources:
            resources.enter_context(lock_state(settings.state_directory))
            self._store = resources.enter_context(Store(settings.state_directory))
            about = self._about = self._store.about()
            about.config_file, about.without_entry = "", []  # the name is empty while the activator starts
            about.group_id = group_id = settings.group_id or topics.prefix + DEFAULT_GROUP_ID
            about.directory, about.host = working_directory(), socket.gethostname()
            about.place, about.has_own_group = hints.place(), group_id != topics.prefix + DEFAULT_GROUP_ID
            with self._store.transaction():
                self._store.save_about(about)
            self._without_entry = QueuesWithoutEntry(about.without_entry)
            self._rows = Rows(about, settings.state_directory)
            admin = Admin(cluster)
            admin.require_topics(rights(reads=[topics.activations, topics.monitors], writes=[topics.receives]))
            admin.require_group(group_id)
            pass_over = partial(self._say, "passed over")
            self._view = resources.enter_context(closing(MonitorsView(cluster, topics.monitors, pass_over)))
            self._view.read_to_end()
            self._ended_sessions = resources.enter_context(closing(EndedSessions(cluster, topics.receives)))
            place = Place(topics.activators, about.instance_id, group_id)
            self._published = resources.enter_context(closing(PublishedRows(cluster, place, self._say)))
            notifications = Notifications(cluster, topics.activations, group_id, about.instance_id, pass_over)
            self._notifications = resources.enter_context(closing(notifications))
            self._partitions = QueuePartitions(admin, topics)
            self._queues = Queues(
                self._store.queues(),
                settings,
                self._config,
                self._view,
                self._partitions,
                OffsetRetention(admin),
                self._rows,
                self._programs,
            )
            self._resources = resources.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._resources:
            if error is None and self._is_ready:
                self._end()

    @property
    def running(self) -> dict[str, int]:
        """Returns the process ids of the running programs, by session."""
        return {session_id: program.pid for session_id, (_, program) in self._programs.items()}

    def look_at_config(self) -> None:
        """Makes the next step read the config file again, even if it is unchanged. A signal handler may call this."""
        self._is_config_asked = True

    def run(self, stop: threading.Event) -> None:
        """Works until `stop` is set."""
        while not stop.is_set():
            self.step(_STEP_S)

    def step(self, timeout_s: float) -> None:
        """Waits up to `timeout_s` for notifications, then handles them and all other due work.

        Raises:
            UserError: Another activator has taken over this member's place in the group, or Kafka denies access.
        """
        messages = self._notifications.poll(timeout_s)
        step = self._new_step()
        if not self._is_ready:
            if not self._notifications.is_assigned:
                return
            self._begin(step)
        self._look_around(step)
        self._queues.take_changed(step)
        keys = [(message.key() or b"").decode(errors="replace") for message in messages]
        self._partitions.look(keys, self._config.current, step)
        for message in messages:
            self._take(message, step)
        self._take_exits(step)
        self._queues.decide_due(step)
        self._finish(step)
        self._notifications.done(messages)

    def _begin(self, step: Step) -> None:
        """Begins the first step: finds running programs of an earlier run, and records the ends of all others."""
        self._is_ready = True
        self._about.pid, self._about.since_ms = os.getpid(), step.now_ms
        self._about.config_file, self._about.config_error = utf8(str(self._config.path)), None
        self._save_about(step.now_ms)  # before READY, so that `activator status` is complete from then on
        self._on_event(ActivatorEvent(step.now_ms, None, READY, f"config {self._config.path}"))
        for record in self._queues.records.values():
            record.state.resumed(step.now_ms)
        for known in self._store.programs():
            try:
                adopted = AdoptedProgram(known.identity)
            except ProcessLookupError:
                end = Exit(None, is_noticed_later=True)
                self._queues.exited(known.session_id, known.queue, end, known.identity.pid, step)
                continue
            self._programs[known.session_id] = known.queue, adopted
            step.note(known.queue, "found", "still running, started by an earlier run", adopted.pid)
        for session_id, queue in self._store.ended_sessions():
            # It is unknown whether the session was interrupted. If it was, the messages are not to blame.
            self._ended_sessions.report(SessionEnded(queue, session_id, interrupted=True))
        self._queues.decide_all(step)
        step.told |= self._queues.records.keys()  # the activator may have another config or host now

    def _look_around(self, step: Step) -> None:
        """Does periodic work: reloads the config, reports Kafka outages, saves the status, removes idle queues."""
        now_s = time.monotonic()
        if self._is_config_asked or now_s - self._looked_s >= _CONFIG_LOOK_INTERVAL_S:
            self._looked_s = now_s
            if self._config.has_changed() or self._is_config_asked:
                self._is_config_asked = False
                self._reload(step)
        self._queues.tell_of_others(self._published.take_found(), step)
        if self._about.kafka_problem != self._notifications.problem:
            self._about.kafka_problem = self._notifications.problem
            if self._about.kafka_problem is not None:
                step.note(None, "waiting", self._about.kafka_problem)
            else:
                step.note(None, "works again", "Kafka answers")
            self._save_about(step.now_ms)
        if now_s - self._seen_s >= SEEN_INTERVAL_S:
            self._seen_s = now_s
            self._save_about(step.now_ms)
        if now_s - self._forgot_s >= _FORGET_INTERVAL_S:
            self._forgot_s = now_s
            self._queues.forget(self._store, step)

    def _reload(self, step: Step) -> None:
        try:
            self._config.reload()
        except UserError as error:
            self._about.config_error = utf8(str(error))
            step.note(None, "config refused, the previous one stays", str(error))
        else:
            self._about.config_error = None
            self._without_entry.reconsider(self._config.current)
            step.note(None, "config", "reloaded")
            self._queues.decide_all(step)
            self._queues.tell_of_others(self._published.queues, step)
        self._save_about(step.now_ms)

    def _take(self, message: Message, step: Step) -> None:
        """Handles a record of queue-activations."""
        record = self._notifications.decoder.decode(message)
        if record is None:
            return
        is_old = self._notifications.is_old(message)
        has_entry = self._queues.take(record, is_old, step)
        if not has_entry and self._without_entry.take(record, self._view.row(record.queue), is_old, step):
            self._save_about(step.now_ms)

    def _take_exits(self, step: Step) -> None:
        for session_id, (queue, program) in list(self._programs.items()):
            end = program.poll()
            if end is not None:
                del self._programs[session_id]
                program.release()
                self._queues.exited(session_id, queue, end, program.pid, step)
                self._queues.decide(queue, step)

    def _finish(self, step: Step) -> None:
        """Records the step, then carries it out."""
        acknowledged = self._ended_sessions.take_acknowledged()
        if step.old:
            step.note(None, "ignored", f"{plural(step.old, 'old notification')}: an answer is no longer needed")
        for stopped in step.stopped:
            # Before the record: a signal that is recorded and never sent would let the program run forever.
            stopped.signal(signal.SIGTERM)
        step.save(self._store, self._queues.records, acknowledged)
        for record, program in step.started:
            program.open_gate()
            self._programs[record.session_id] = record.queue, program
        for ended in step.ended:
            self._ended_sessions.report(ended)
        for event in step.events:
            self._on_event(event)
        self._rows.add(step, self._queues.records, self.running)
        self._published.publish(step.rows, is_well=not step.has_kafka_problem)

    def _end(self) -> None:
        """Leaves the programs running, or stops them and reports their sessions. Records the end of the activator."""
        step = self._new_step()
        stopped = []
        if self._settings.stop_programs:
            stopped = [(queue, program.pid) for queue, program in self._programs.values()]
            stop_all([program for _, program in self._programs.values()], _STOP_TIMEOUT_S)
            step.now_ms = self._now_ms()
            for session_id, (queue, program) in self._programs.items():
                program.release()
                # Its exit code says nothing about the program, because the activator stopped it.
                self._queues.exited(session_id, queue, Exit(None), program.pid, step)
            self._programs.clear()
        self._finish(step)
        for _, program in self._programs.values():
            program.release()
        timeout_s = 0 if self._notifications.problem is not None else _FLUSH_TIMEOUT_S
        acknowledged = self._ended_sessions.flush(timeout_s)
        self._published.flush(timeout_s)
        end = self._new_step()
        running = [(queue, program.pid) for queue, program in self._programs.values()]
        end.note(None, "stopped", left_running(running, stopped))
        end.save(self._store, self._queues.records, acknowledged)
        for event in end.events:
            self._on_event(event)

    def _save_about(self, now_ms: int) -> None:
        self._about.seen_ms = now_ms
        self._about.passed_over = self._notifications.decoder.passed_over + self._view.passed_over
        with self._store.transaction():
            self._store.save_about(self._about)

    def _new_step(self) -> Step:
        now_ms = self._now_ms()
        self._view.clock_ms = now_ms - wall_clock.now_ms()
        return Step(now_ms, self._notifications.problem is not None)

    def _say(self, what: str, line: str) -> None:
        self._on_event(ActivatorEvent(self._now_ms(), None, what, line))

    def _now_ms(self) -> int:
        return round((time.monotonic() + self._wall_minus_monotonic_s) * 1000)
