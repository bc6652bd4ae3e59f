"""The task host: takes tasks from queue-tasks, runs them, and reports their starts and ends to the monitor."""

import errno
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Self

from streaming.core.activation.task_handlers import Duty, TaskHandlers
from streaming.core.maintenance.schedule import PeriodicTask
from streaming.core.maintenance.tasks import RESTART_TASK_HANDLERS
from streaming.core.numbers import plural
from streaming.core.times import readable_time
from streaming.daemons.host.config import GROUP_ID, HostConfig
from streaming.daemons.host.invocation import Invocation, import_problem
from streaming.daemons.host.late_tasks import LateTasks
from streaming.daemons.host.reports import Reports
from streaming.daemons.host.run_function import CANNOT_IMPORT
from streaming.daemons.host.start_records import StartRecord, StartRecords
from streaming.daemons.host.task_changes import TaskChange, TaskEvent, name_of
from streaming.daemons.host.task_claims import NotTakenError, Taking
from streaming.daemons.host.task_decisions import Refusal, decide
from streaming.errors import UserError
from streaming.kafka.access import rights
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.periodic_tasks import counted, published
from streaming.system import wall_clock
from streaming.system.os_errors import in_words
from streaming.system.processes import ChildProcess, connection_environment
from streaming.system.stop_signals import is_stop_code
from streaming.system.toml_file import TomlFile
from streaming.wire.input_records import SessionEnded, TaskExited, TaskFailedToStart, TaskStarted
from streaming.wire.output_records import StartActivatedTask
from streaming.wire.topics import Topics

_SOONER = "a second Ctrl-C ends them now"

# The line that a host prints when it begins to take tasks. Programs wait for exactly this line.
READY = "host ready"
# The longest time until an exit or a signal is noticed.
STEP_S = 0.2
CONFIG_INTERVAL_MS = 1_000
# The pause after a record that could not be taken.
TAKE_AGAIN_MS = 1_000
# The time between SIGTERM and SIGKILL for a task.
TERM_GRACE_S = 10.0
FLUSH_TIMEOUT_S = 10.0

# Temporary shortages of the system: fork(2), pipe(2).
_PASSING = frozenset((errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE))
# The longest name that a record may carry (input_records.Identifier).
_MAX_HOST_LENGTH = 256


@dataclass(frozen=True)
class HostSettings:
    """The settings of `queue-activation host`.

    Attributes:
        cluster: The Kafka cluster.
        config_file: The file that says what runs each procedure.
        topic_prefix: The beginning of the names of the monitor's topics.
        group_id: The consumer group of all hosts; empty: the topic prefix and `queue-activation-host`.
        kafka_config: The properties file of `cluster`, whose name is passed to the tasks.
    """

    cluster: Cluster
    config_file: Path
    topic_prefix: str = ""
    group_id: str = ""
    kafka_config: Path | None = None


@dataclass
class _Hosted:
    """A task that this host has taken; `process` is None until the task runs.

    Attributes:
        has_failed_to_start: Whether a start has failed for lack of resources.
    """

    task: StartActivatedTask
    invocation: Invocation
    process: ChildProcess | None = None
    has_failed_to_start: bool = False


class TaskHost:
    """A context manager that runs tasks. At the end of its block, it ends the tasks that still run.

    In the block, call either `run`, or `step` repeatedly.
    """

    def __init__(
        self,
        settings: HostSettings,
        say: Callable[[str], None],
        on_change: Callable[[TaskChange], None] = lambda _change: None,
    ) -> None:
        """Reads the configuration.

        Args:
            settings: The host's settings.
            say: Writes a line to the host's log; READY when the host begins to take tasks.
            on_change: Called for every start, failed start and exit.

        Raises:
            UserError: The configuration cannot be read, or is invalid.
        """
        self._settings = settings
        self._say = say
        self._on_change = on_change
        self._connection = connection_environment(
            settings.cluster.bootstrap_servers, settings.topic_prefix, settings.kafka_config
        )
        self._config = TomlFile(settings.config_file, HostConfig)
        self._topics = Topics(settings.topic_prefix)
        self._name = f"{socket.gethostname()}:{os.getpid()}"[-_MAX_HOST_LENGTH:]
        self._handlers = TaskHandlers()
        self._hosted: dict[str, _Hosted] = {}
        self._had_room = True
        self._restarted = 0
        self._late = LateTasks(say)
        self._next_look_ms = 0
        self._take_from_ms = 0
        self._has_left = False
        self._is_ending = False
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        """Joins the consumer group of the hosts.

        Raises:
            UserError: Kafka denies access or cannot be reached, or a topic is missing.
        """
        cluster = self._settings.cluster
        group_id = self._settings.group_id or f"{self._settings.topic_prefix}{GROUP_ID}"
        admin = Admin(cluster)
        admin.require_topics(rights(reads=[self._topics.tasks], writes=[self._topics.receives]))
        admin.require_group(group_id)
        self._check_functions()
        self._reports = Reports(cluster, self._topics.receives, self._say)
        self._records = StartRecords(cluster, self._topics.tasks, group_id, self._say)
        try:
            self._taking = Taking(cluster, self._topics.receives, self._records)
        except BaseException:
            self._records.close()
            raise
        restart = {PeriodicTask(*RESTART_TASK_HANDLERS): counted(lambda: self._restarted)}
        self._periodic = self._resources.enter_context(published("host", restart, cluster, admin, self._topics))
        return self

    def __exit__(self, *_: object) -> None:
        with self._resources:
            self._leave()
            self._end_all()
            self._reports.close(FLUSH_TIMEOUT_S)

    def run(self, stop: Event, hurry: Event) -> None:
        """Runs tasks until `stop` is set, then calls `finish`."""
        has_said = False
        while not stop.is_set():
            self.step(STEP_S)
            if self._records.is_member and not has_said:
                has_said = True
                self._say(READY)
        self.finish(hurry)

    def step(self, timeout_s: float) -> None:
        """Does all due work, then waits up to `timeout_s` for a task and takes it.

        Raises:
            UserError: Kafka does not allow the host to read queue-tasks or to report.
        """
        self._attend()
        if self._reports.denied is not None:
            raise self._reports.denied
        now_ms = _now_ms()
        if now_ms >= self._next_look_ms:
            self._next_look_ms = now_ms + CONFIG_INTERVAL_MS
            self._look_at_config()
        is_wanted = self._has_room() and now_ms >= self._take_from_ms and not self._reports.is_kafka_away
        record = self._records.take(timeout_s, is_wanted)
        if record is None:
            self._late.end()
        else:
            self._consider(record)

    def _look_at_config(self) -> None:
        if not self._config.has_changed():
            return
        try:
            self._config.reload()
        except UserError as error:
            self._say(f"the changed configuration is refused, and the previous one stays in use: {error}")
        else:
            self._say(f"the changed configuration {self._config.path} is in use")
            # In a thread of its own, because the host must go on reporting its tasks.
            Thread(target=self._check_functions, name="check of functions", daemon=True).start()

    def _check_functions(self) -> None:
        """Logs at once which functions cannot be run. Otherwise, only a function's first task would show the fault."""
        for procedure in self._config.current.procedures:
            problem = import_problem(procedure, self._connection)
            if problem is not None:
                self._say(
                    f"procedure {procedure.name!r}: its tasks will fail to start, because the function "
                    f"{procedure.function} cannot be run: {problem}"
                )

    def finish(self, hurry: Event) -> None:
        """Waits for the running tasks to end. Takes no further tasks, so that other hosts can take them.

        Args:
            hurry: Once set, ends the wait: tasks that still run get SIGTERM.
        """
        self._leave()
        config = self._config.current
        deadline_ms = _now_ms() + config.stop_timeout_ms
        if self._hosted:
            self._say(f"stopping: {self._those_that_run()} may take up to {config.stop_timeout} to end; {_SOONER}")
        while self._hosted and _now_ms() < deadline_ms and not hurry.wait(STEP_S):
            self._attend()
        self._end_all()

    def _has_room(self) -> bool:
        handlers = self._config.current.handlers
        has_room = len(self._handlers) < handlers
        if self._had_room and not has_room:
            self._say(f"all {handlers} handlers are busy: further tasks wait in topic {self._topics.tasks}")
        self._had_room = has_room
        return has_room

    def _consider(self, record: StartRecord) -> None:
        """Takes a task, or refuses it; neither can be undone."""
        task = record.task
        try:
            if record.is_repeat:
                self._taking.commit(record, None)
                self._say(f"record {record.offset} of {self._topics.tasks}[{record.partition}] is a repeat")
                return
            wanted = decide(record, self._config.current, self._connection, wall_clock.now_ms())
            if isinstance(wanted, Refusal):
                self._taking.commit(record, TaskFailedToStart(task.queue, task.task_id, reason=wanted.reason))
                tell = self._tell if not wanted.is_late or self._late.is_first() else self._on_change
                tell(TaskChange(TaskEvent.FAILED_TO_START, task, reason=wanted.reason))
                return
            self._taking.commit(record, TaskStarted(task.queue, task.task_id, self._name))
        except NotTakenError as error:
            if not error.is_usual:
                self._take_from_ms = _now_ms() + TAKE_AGAIN_MS
                self._say(f"a task could not be taken: {error}")
            return
        now_ms = _now_ms()
        self._hosted[task.task_id] = _Hosted(task, wanted)
        self._handlers.take(task.task_id, now_ms + record.expires_ms - wall_clock.now_ms(), now_ms)
        self._attend()

    def _attend(self) -> None:
        """Reaps exits, sends heartbeats, starts pending tasks, and does the periodic task."""
        self._periodic.look()
        now_ms = _now_ms()
        self._reports.serve(now_ms)
        for hosted in list(self._hosted.values()):
            self._look_for_exit(hosted)
        # An undelivered report already says that its task runs, so an outage ends with one report for each task.
        may_repeat = self._reports.are_delivered()
        for task_id, duty in self._handlers.due(now_ms):
            task = self._hosted[task_id].task
            if duty is Duty.START:
                self._start(self._hosted[task_id])
            elif duty is Duty.GIVE_UP:
                self._fail(task, f"it could not be started before {readable_time(task.expires_at)}")
            elif may_repeat:
                self._reports.send(TaskStarted(task.queue, task_id, self._name))
                self._handlers.reported(task_id, now_ms)

    def _start(self, hosted: _Hosted) -> None:
        wanted, task = hosted.invocation, hosted.task
        try:
            hosted.process = ChildProcess(
                wanted.words, log_file=wanted.log_file, env=wanted.environment, cwd=wanted.directory
            )
        except (OSError, ValueError) as error:  # ValueError: an argument or a variable contains a NUL character
            if getattr(error, "errno", None) in _PASSING:
                self._handlers.not_started(task.task_id, _now_ms())
                hosted.has_failed_to_start = True
                self._say(f"{name_of(task)} cannot be started at the moment and will be tried again: {in_words(error)}")
            else:
                self._fail(task, in_words(error))
            return
        self._handlers.started(task.task_id, _now_ms())
        self._restarted += hosted.has_failed_to_start
        self._tell(TaskChange(TaskEvent.STARTED, task, process_id=hosted.process.pid))

    def _look_for_exit(self, hosted: _Hosted) -> None:
        exit_code = hosted.process.poll() if hosted.process is not None else None
        if hosted.process is None or exit_code is None:
            return
        task = hosted.task
        # The messages of a task are to blame only if it has crashed by itself.
        interrupted = self._is_ending or is_stop_code(exit_code) or self._reports.is_kafka_away
        self._reports.send(SessionEnded(task.queue, task.task_id, interrupted))
        function, output = hosted.invocation.function, hosted.invocation.output(self._name)
        if function is not None and exit_code == CANNOT_IMPORT:
            self._fail(task, f"the function {function} cannot be imported: {output}")
            return
        # A service manager that stops the host may signal its tasks as well.
        is_stopped = self._is_ending or (self._has_left and is_stop_code(exit_code))
        self._reports.send(TaskExited(task.queue, task.task_id, exit_code, output, is_stopped))
        self._free(task)
        self._tell(TaskChange(TaskEvent.EXITED, task, hosted.process.pid, exit_code, interrupted=is_stopped))

    def _fail(self, task: StartActivatedTask, reason: str, *, interrupted: bool = False) -> None:
        """Reports that a taken task has failed to start. `interrupted`: because this host is being stopped."""
        self._reports.send(TaskFailedToStart(task.queue, task.task_id, reason=reason, interrupted=interrupted))
        self._free(task)
        self._tell(TaskChange(TaskEvent.FAILED_TO_START, task, reason=reason))

    def _free(self, task: StartActivatedTask) -> None:
        self._handlers.free(task.task_id)
        del self._hosted[task.task_id]

    def _leave(self) -> None:
        """Stops taking and starting tasks."""
        if self._has_left:
            return
        self._has_left = True
        if self._hosted:
            self._periodic.stopping()  # first, because views take a host that has left its group for gone
        self._records.close()
        self._taking.close()
        for task_id in self._handlers.waiting():
            self._fail(self._hosted[task_id].task, "the host that had taken it is being stopped", interrupted=True)

    def _end_all(self) -> None:
        """Ends the running tasks: SIGTERM, then SIGKILL for those that still run after TERM_GRACE_S."""
        self._attend()
        processes = [hosted.process for hosted in self._hosted.values() if hosted.process is not None]
        if not processes:
            return
        self._is_ending = True
        self._say(f"ending {self._those_that_run()} by SIGTERM, and by SIGKILL after {TERM_GRACE_S:.0f} s")
        for process in processes:
            os.kill(process.pid, signal.SIGTERM)  # not waited for yet, so the process id is still its own
        deadline_s = time.monotonic() + TERM_GRACE_S
        while self._hosted and time.monotonic() < deadline_s:
            time.sleep(STEP_S / 4)
            self._attend()
        for process in processes:
            process.stop(0)
        self._attend()

    def _those_that_run(self) -> str:
        names = ", ".join(name_of(hosted.task) for hosted in self._hosted.values())
        return f"{plural(len(self._hosted), 'running task')} ({names})"

    def _tell(self, change: TaskChange) -> None:
        self._say(change.line())
        self._on_change(change)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
