"""The life of a program's query: the start, the wait for the end, and the stop after the batch in progress."""

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from streaming.daemons.query.sole_program import Kind, SoleProgram
from streaming.daemons.query.ticker import Ticker
from streaming.errors import UserError
from streaming.kafka import access
from streaming.kafka.access import RightMissingError
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.topic_watch import TopicWatch
from streaming.spark import class_archive, query_failure, session
from streaming.system import logs, start_progress, stop_signals
from streaming.system.stop_signals import StopSignals
from streaming.system.threads import WatchedThread
from streaming.wire.topics import Topics

# Interval at which the main thread checks for a stop signal and for a query that has ended by itself.
_POLL_INTERVAL_S = 0.25
_READY_POLL_INTERVAL_S = 0.05
# Several times as long as it takes to cancel a batch.
_STOP_TIMEOUT_S = 5.0
# A program that has lost its place to a program on the same checkpoint learns of the loss within one or two seconds.
_HEARD_WITHIN_S = 4.0
_MAX_RESTARTS = 3
# Spark's status begins with this while it asks Kafka for the offsets of the next batch (MicroBatchExecution).
_PLANNING = "Getting offsets from"

_log = logging.getLogger(__name__)


class Writer(Protocol):
    """A part of the program that writes to Kafka beside the query.

    Attributes:
        task: The part's task, for messages.
        denied: The error if Kafka does not allow the part to write; else None.
    """

    task: str
    denied: RightMissingError | None

    @property
    def failure(self) -> BaseException | None:
        """Returns the error that ended the part's work; None while the work goes on."""


@dataclass(frozen=True)
class KafkaFound:
    """The Kafka cluster and its topics, as a program has found them at its start."""

    cluster: Cluster
    admin: Admin
    topics: Topics
    partitions: Mapping[str, int]
    topic_ids: Mapping[str, str]


def _print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class QueryRun:
    """A program that runs a query.

    Attributes:
        kind: The kind of program.
        sole: The program's place.
        signals: The stop signals.
        spark: The session.
        topic_watch: The watch on the topics whose offsets are in the checkpoint.
        ticker: The ticks.
        writers: Further parts of the program that write.
        start: Starts the query.
        is_ready: Returns whether the query is ready; called several times a second until then.
        look: Called several times a second.
        say: Prints a line. `run` replaces `say`, and recognizes the line that announces readiness.
    """

    kind: Kind
    sole: SoleProgram
    signals: StopSignals
    spark: SparkSession
    topic_watch: TopicWatch
    ticker: Ticker
    writers: Sequence[Writer]
    start: Callable[[], StreamingQuery]
    is_ready: Callable[[StreamingQuery], bool]
    look: Callable[[], None]
    say: Callable[[str], None] = _print_line

    def run(self) -> int:
        """Runs the query until a stop signal or a failure; returns the exit code.

        Raises:
            UserError: Another program has the place now.
            AccessDeniedError: Kafka denies the program access.
        """
        try:
            query = self._undisturbed()
            self.sole.check()
            return self._end(query)
        except UserError:
            raise
        except Exception:
            ended = session.how_java_ended()
            if ended is None:
                raise
            logs.report(f"The {self.kind.name}'s query failed: its Java process was ended {ended}")
            return 1

    def _undisturbed(self) -> StreamingQuery:
        """Runs the query, again after each failure that the previous program has caused. Returns the last query."""
        query = self._run_once()
        for _ in range(_MAX_RESTARTS):
            if not self._is_disturbed(query):
                break
            name = self.kind.name
            _log.warning("The %s before this one was still writing to the checkpoint. Starting the query again", name)
            query = self._run_once()
        return query

    def _run_once(self) -> StreamingQuery:
        with start_progress.told(f"starting the {self.kind.name}'s query", "ready after its first batch"):
            query = self.start()
            is_ready = self._await(partial(self.is_ready, query), query, _READY_POLL_INTERVAL_S)
        if is_ready:
            class_archive.note_class_path(session.class_path(self.spark))
            self.sole.note_ready()
            self.say(self.kind.ready)
            self._await(lambda: False, query, _POLL_INTERVAL_S)
        return query

    def _is_disturbed(self, query: StreamingQuery) -> bool:
        """Returns whether the query failed only because the previous program was still writing to the checkpoint.

        The previous program has lost its place to this program. The previous program may write until it learns of the
        loss, and then ends. This function also waits long enough to learn whether this program has lost its own place.
        """
        if query.isActive or not query_failure.is_concurrent_write(query):
            return False
        deadline_s = time.monotonic() + _HEARD_WITHIN_S
        while time.monotonic() < deadline_s and not self.sole.has_problem():
            if self.signals.stop.wait(_READY_POLL_INTERVAL_S):
                return False
        return not self.sole.has_problem()

    def _await(self, condition: Callable[[], bool], query: StreamingQuery, interval_s: float) -> bool:
        """Waits for the condition. Returns False if the query ends or has to end first, or if a signal arrives."""
        while query.isActive and not self.signals.stop.wait(interval_s) and not self._has_to_end():
            if condition():
                return True
        return False

    def _has_to_end(self) -> bool:
        self.look()
        is_broken = any(each.denied or each.failure for each in self._all_writers())
        return bool(is_broken or self.sole.has_problem() or self.topic_watch.problem())

    def _all_writers(self) -> list[Writer]:
        return [self.ticker, *self.writers]

    def _end(self, query: StreamingQuery) -> int:
        """Ends the query. Reports the reason unless a signal asked for the end. Returns the exit code.

        Raises:
            AccessDeniedError: Kafka denies the program access.
        """
        failure = query_failure.reason_of(query)
        refusals = [each.denied for each in self._all_writers() if each.denied is not None]
        denied = refusals[0] if refusals else access.java_denial(failure or "")
        if denied is not None:
            raise denied
        is_asked = self.signals.stop.is_set()
        problem = None if is_asked else self.topic_watch.problem_now()
        if problem is not None:
            logs.report(f"Topics were {problem}")
            returns(partial(_cancel, query), self.signals)
            return 1
        if failure is not None:
            logs.report(f"The {self.kind.name}'s query failed: {failure}")
            return 1
        broken = [each for each in self._all_writers() if each.failure is not None]
        if broken and not is_asked:
            logs.report(f"The {self.kind.name} can no longer {broken[0].task}: {broken[0].failure!r}")
            returns(partial(_cancel, query), self.signals)
            return 1
        self.ticker.stop()
        _await_batch(query, self.signals)
        returns(partial(_cancel, query), self.signals)
        return 0


def _cancel(query: StreamingQuery) -> None:
    """Ends the query. Silences Spark, which would log the cancelled batch as errors."""
    session.silence()
    query.stop()


def returns(call: Callable[[], None], signals: StopSignals) -> bool:
    """Calls a function that ends a part of Spark. Returns whether the function returns in time.

    The limit is `_STOP_TIMEOUT_S`, or `GRACE_S` after a second signal. Spark's sources and sinks wait a minute for an
    unreachable Kafka, even when they have to stop. The checkpoint is already complete, so a late stop loses nothing.
    """
    calling = WatchedThread("stop", call)
    calling.start()
    begin_s = time.monotonic()
    while calling.is_alive():
        limit_s = stop_signals.GRACE_S if signals.hurry.is_set() else _STOP_TIMEOUT_S
        if time.monotonic() > begin_s + limit_s:
            return False
        calling.join(_READY_POLL_INTERVAL_S)
    calling.check()
    return True


def _await_batch(query: StreamingQuery, signals: StopSignals) -> None:
    """Waits for the end of the batch in progress, which query.stop() would cancel. A second signal ends the wait.

    Recognises the batch by its number, because under steady traffic the next batch begins at once. The next batch is
    cancelled, and runs again at the next start. While Spark asks Kafka for the offsets of a batch, the batch has no
    work that could be lost. So this function does not wait for a Kafka that does not answer.
    """
    in_progress = _last_batch(query) + 1
    if not in_progress:
        return  # The first batch since the start may take long, and no program waits for its results yet.
    planned_s = time.monotonic()
    while query.isActive and _last_batch(query) < in_progress:
        status = query.status
        if not status["message"].startswith(_PLANNING):
            planned_s = time.monotonic()
        is_kafka_silent = time.monotonic() > planned_s + stop_signals.GRACE_S
        if not status["isTriggerActive"] or is_kafka_silent or signals.hurry.wait(_READY_POLL_INTERVAL_S):
            return


def _last_batch(query: StreamingQuery) -> int:
    """Returns the number of the last batch that this query has committed; -1 if no batch is committed."""
    # Spark reports a batch's progress after the commit.
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def absolute(location: str) -> str:
    """Returns the full path of a local folder. Spark would resolve a relative path in its own working directory."""
    return str(Path(location).absolute()) if "://" not in location else location
