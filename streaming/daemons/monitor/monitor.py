"""Runs the monitor: checks its requirements, starts the query and the tick, and stops both after the current batch."""

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pyspark.sql.streaming import StreamingQuery

from streaming.core.activation.settings import CoreSettings
from streaming.daemons.monitor import sole_monitor
from streaming.daemons.monitor.metrics import Metrics, MetricsSettings
from streaming.daemons.monitor.sole_monitor import SoleMonitor
from streaming.daemons.monitor.ticker import Ticker
from streaming.kafka import access, client_properties
from streaming.kafka.access import Rights, rights
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.topic_watch import TopicWatch
from streaming.spark import class_archive, progress_files, query_failure, session
from streaming.spark.activation import checkpoint_layout, handover
from streaming.spark.activation.checkpoint_layout import Layout
from streaming.spark.activation.output_rows import DEAD_LETTER_VALUE_BYTES
from streaming.spark.activation.query import MAX_KEY_BYTES, QUERY_NAME, Beginning, prepare_query
from streaming.spark.activation.refusals import RefusalLog, RefusalsParam
from streaming.spark.activation.shard_settings import ServerNames, ShardSettings
from streaming.spark.sharded_query import QuerySettings, WorkerReports
from streaming.spark.wake_times import WakesParam, WakeTimes
from streaming.system import logs, stop_signals
from streaming.system.stop_signals import STOP_SIGNALS, StopSignals
from streaming.system.threads import WatchedThread
from streaming.wire.notifications import ActivationFormat
from streaming.wire.topics import Topics

# Interval at which the main thread checks for a stop signal and for a query that has ended by itself.
_POLL_INTERVAL_S = 0.25
_READY_POLL_INTERVAL_S = 0.05
# Several times as long as it takes to cancel a batch.
_STOP_TIMEOUT_S = 5.0
# A monitor whose place was taken by one on the same checkpoint learns of it within one or two seconds.
_HEARD_WITHIN_S = 4.0
_MAX_RESTARTS = 3
# Spark's status begins with this while it asks Kafka for the offsets of the next batch (MicroBatchExecution).
_PLANNING = "Getting offsets from"

# Kafka's number for the broker's default.
_BROKERS_REPLICATION_FACTOR = -1

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MonitorSettings:
    """The options of `queue-activation monitor`.

    `shards` is None for the checkpoint's number, or for the default in a new checkpoint. `continue_from` is the
    checkpoint whose state and offsets a new one takes over.
    """

    bootstrap_servers: str
    kafka_properties: Mapping[str, str]
    checkpoint_location: str
    continue_from: str | None
    topic_prefix: str
    shards: int | None
    trigger_interval_ms: int
    max_offsets_per_trigger: int
    starting_offsets: str
    names: ServerNames
    activation_format: ActivationFormat
    logs_batches: bool
    metrics: MetricsSettings | None
    max_queues: int
    driver_memory: str
    core: CoreSettings


def run(settings: MonitorSettings) -> int:
    """Runs the monitor until SIGTERM, Ctrl-C or a failure; returns the exit code.

    Raises:
        UserError: A requirement is missing or wrong, and the user can correct it.
    """
    # Spark sets its own handler for SIGINT. It can raise KeyboardInterrupt in the instant before it is replaced.
    with suppress(KeyboardInterrupt), stop_signals.taken():
        return _run(settings)
    return 0


def _run(settings: MonitorSettings) -> int:
    topics = Topics(settings.topic_prefix)
    cluster = Cluster(settings.bootstrap_servers, client_properties.for_librdkafka(settings.kafka_properties))
    admin = Admin(cluster)
    partitions = admin.require_topics(_rights(topics))
    group_id = settings.topic_prefix + sole_monitor.GROUP_ID
    admin.require_group(group_id)
    topic_ids = admin.topic_ids(topics.inputs())
    for sentence in admin.other_settings(topics.specs()):
        _log.warning("%s", sentence)
    if settings.logs_batches:
        admin.create_topics([topics.batches_spec()], partitions[topics.activations], _BROKERS_REPLICATION_FACTOR)
    kafka = _Kafka(cluster, admin, topics, partitions, topic_ids)
    with (
        Metrics(settings.metrics, cluster, topics, partitions) if settings.metrics else nullcontext() as metrics,
        SoleMonitor(cluster, admin, group_id, topics.ticks, partitions[topics.ticks]) as sole,
    ):
        return _run_query(settings, kafka, metrics, sole)


@dataclass(frozen=True)
class _Kafka:
    """The Kafka cluster and its topics, as found at the start."""

    cluster: Cluster
    admin: Admin
    topics: Topics
    partitions: Mapping[str, int]
    topic_ids: Mapping[str, str]


def _run_query(settings: MonitorSettings, kafka: _Kafka, metrics: Metrics | None, sole: SoleMonitor) -> int:
    """Starts Spark and the query, waits for the query's end, and returns the exit code."""
    location = _absolute(settings.checkpoint_location)
    spark = session.create(location, settings.driver_memory)
    with stop_signals.taken() as signals:
        if session.is_submitted():
            session.forward_signals(STOP_SIGNALS)
        try:
            progress_files.require_whole(spark, location)
            continue_from = settings.continue_from and _absolute(settings.continue_from)
            wanted = checkpoint_layout.Wanted(settings.shards, settings.topic_prefix, kafka.topic_ids, continue_from)
            layout = checkpoint_layout.settle(spark, location, wanted)
            sole.join(checkpoint_layout.id_of(spark, location, layout), sole_monitor.client_id(location))
            # The older checkpoint is read only once no other monitor can be writing to it.
            if layout.continued_from is not None:
                sole.wait()
            handed_over = handover.pending(spark, location, layout)
            wakes = spark.sparkContext.accumulator({}, WakesParam())
            refused = spark.sparkContext.accumulator(Counter(), RefusalsParam())
            writer = prepare_query(
                spark,
                _query_settings(settings, location, layout),
                Beginning(settings.starting_offsets, layout.has_tick_source, handed_over),
                _shard_settings(settings, len(layout.keys)),
                kafka.partitions,
                WorkerReports(wakes, metrics.listen(spark, QUERY_NAME, wakes) if metrics is not None else None),
                refused,
            )
            sole.wait()
            checkpoint_layout.keep(spark, location, layout)
            signals.only_note()
            wake_times = WakeTimes(layout.keys)

            def is_due() -> bool:
                wake_times.update(wakes.value)
                return wake_times.is_due()

            with Ticker(kafka.cluster, kafka.topics.ticks, settings.core.check_interval_ms, is_due) as ticker:
                topic_watch, refusal_log = TopicWatch(kafka.admin, kafka.topic_ids), RefusalLog()

                def is_ready(query: StreamingQuery) -> bool:
                    if query.lastProgress is None:
                        return False
                    return handed_over is None or handover.end(spark, location, layout, query)

                def has_to_end() -> bool:
                    refusal_log.look(refused.value)
                    return bool(sole.has_problem() or ticker.denied or ticker.failure or topic_watch.problem())

                def run_once() -> StreamingQuery:
                    query = writer.start()
                    if _await(partial(is_ready, query), has_to_end, query, signals, _READY_POLL_INTERVAL_S):
                        class_archive.note_class_path(session.class_path(spark))
                        _say("monitor ready")
                        _await(lambda: False, has_to_end, query, signals, _POLL_INTERVAL_S)
                    return query

                query = _undisturbed(run_once, sole, signals)
                sole.check()
                return _end(query, ticker, topic_watch, signals)
        finally:
            if not _returns(spark.stop, signals):
                session.kill()


def _undisturbed(run_once: Callable[[], StreamingQuery], sole: SoleMonitor, signals: StopSignals) -> StreamingQuery:
    """Runs the query, and again if the monitor whose place this one has taken disturbs it. Returns the last query."""
    query = run_once()
    for _ in range(_MAX_RESTARTS):
        if not _is_disturbed(query, sole, signals):
            break
        _log.warning("The monitor before this one was still writing to the checkpoint. Starting the query again")
        query = run_once()
    return query


def _is_disturbed(query: StreamingQuery, sole: SoleMonitor, signals: StopSignals) -> bool:
    """Returns whether the query failed only because the previous monitor was still writing to the checkpoint.

    The previous monitor has lost its place to this one. It may write until it learns of that, and then ends. This
    function also waits long enough for this monitor to learn whether it has lost its own place to another one.
    """
    if query.isActive or not query_failure.is_concurrent_write(query):
        return False
    deadline_s = time.monotonic() + _HEARD_WITHIN_S
    while time.monotonic() < deadline_s and not sole.has_problem():
        if signals.stop.wait(_READY_POLL_INTERVAL_S):
            return False
    return not sole.has_problem()


def _rights(topics: Topics) -> Rights:
    inputs = topics.inputs()
    outputs = [spec.name for spec in topics.specs() if spec.name not in inputs]
    return rights(reads=inputs, writes=[topics.ticks, *outputs])


def _end(query: StreamingQuery, ticker: Ticker, topic_watch: TopicWatch, signals: StopSignals) -> int:
    """Ends the query, reports the reason unless a signal asked for the end, and returns the exit code.

    Raises:
        AccessDeniedError: Kafka denies the query access.
    """
    failure = query_failure.reason_of(query)
    denied = ticker.denied or access.java_denial(failure or "")
    if denied is not None:
        raise denied
    problem = None if signals.stop.is_set() else topic_watch.problem_now()
    if problem is not None:
        logs.report(f"Topics were {problem}")
        _returns(query.stop, signals)
        return 1
    if failure is not None:
        logs.report(f"The monitor's query failed: {failure}")
        return 1
    if ticker.failure is not None and not signals.stop.is_set():
        logs.report(f"The monitor can no longer write ticks: {ticker.failure!r}")
        _returns(query.stop, signals)
        return 1
    ticker.stop()
    _await_batch(query, signals)
    _returns(partial(_cancel, query), signals)
    return 0


def _cancel(query: StreamingQuery) -> None:
    """Ends the query. Cancels the next batch if it has begun, and silences Spark, which would log that as errors."""
    session.silence()
    query.stop()


def _returns(call: Callable[[], None], signals: StopSignals) -> bool:
    """Calls a function that ends a part of Spark, and returns whether it returns in time.

    The limit is `_STOP_TIMEOUT_S`, or `GRACE_S` after a second signal. Spark's sources and sinks wait a minute for an
    unreachable Kafka, even after they were told to stop. By then the checkpoint has everything that must be kept.
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
    cancelled, and runs again at the next start. While Spark asks Kafka for the offsets of a batch, there is nothing to
    lose, so this function does not wait for a Kafka that does not answer.
    """
    in_progress = _last_batch(query) + 1
    if not in_progress:
        return  # The first batch since the start may take long, and nothing waits for its results yet.
    planned_s = time.monotonic()
    while query.isActive and _last_batch(query) < in_progress:
        status = query.status
        if not status["message"].startswith(_PLANNING):
            planned_s = time.monotonic()
        is_kafka_silent = time.monotonic() > planned_s + stop_signals.GRACE_S
        if not status["isTriggerActive"] or is_kafka_silent or signals.hurry.wait(_READY_POLL_INTERVAL_S):
            return


def _last_batch(query: StreamingQuery) -> int:
    """Returns the number of the last batch that this query has committed; -1 if there is none."""
    # Spark reports a batch's progress after the commit.
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _await(
    condition: Callable[[], bool],
    has_to_end: Callable[[], bool],
    query: StreamingQuery,
    signals: StopSignals,
    interval_s: float,
) -> bool:
    """Waits for the condition. Returns False if the query ends or has to end first, or a signal asks for a stop."""
    while query.isActive and not signals.stop.wait(interval_s) and not has_to_end():
        if condition():
            return True
    return False


def _shard_settings(settings: MonitorSettings, shards: int) -> ShardSettings:
    core = replace(settings.core, max_queues_per_shard=-(-settings.max_queues // shards))
    return ShardSettings(core, settings.topic_prefix, settings.names, settings.activation_format, settings.logs_batches)


def _query_settings(settings: MonitorSettings, location: str, layout: Layout) -> QuerySettings:
    return QuerySettings(
        name=QUERY_NAME,
        bootstrap_servers=settings.bootstrap_servers,
        kafka_options=settings.kafka_properties,
        checkpoint_location=location,
        shard_keys=layout.keys,
        trigger_interval_ms=settings.trigger_interval_ms,
        max_offsets_per_trigger=settings.max_offsets_per_trigger,
        max_key_bytes=MAX_KEY_BYTES,
        max_value_bytes=DEAD_LETTER_VALUE_BYTES,
    )


def _absolute(location: str) -> str:
    """Returns the full path of a local folder; Spark would resolve a relative one in its own working directory."""
    return str(Path(location).absolute()) if "://" not in location else location


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
