"""Runs the monitor: checks what it needs, starts the query and the tick, and stops both after the batch in progress."""

import logging
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql.streaming import StreamingQuery

from streaming import (
    access,
    checkpoint,
    failures,
    handover,
    kafka_config,
    logs,
    pipeline,
    progress_files,
    spark_session,
    stop_signals,
)
from streaming.access import Rights, rights
from streaming.activations import ActivationFormat
from streaming.admin import Admin, Cluster
from streaming.checkpoint import Layout
from streaming.class_archive import ClassArchive
from streaming.core.settings import CoreSettings
from streaming.handover import Handover
from streaming.metrics.service import Metrics, MetricsSettings
from streaming.pipeline import PipelineSettings, WorkerReports
from streaming.shard_settings import ServerNames, ShardSettings
from streaming.stop_signals import STOP_SIGNALS, StopSignals
from streaming.ticker import Ticker
from streaming.topic_watch import TopicWatch
from streaming.topics import Topics
from streaming.wakes import WakesParam, WakeTimes

# How often the main thread looks whether it is asked to stop, or whether the query has ended by itself.
_POLL_INTERVAL_S = 0.25
_READY_POLL_INTERVAL_S = 0.05

# Kafka's own word for "as the broker is set".
_BROKERS_REPLICATION_FACTOR = -1

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MonitorSettings:
    """What `queue-activation monitor` is told.

    `shards` is None for the checkpoint's number, or the default. `continue_from` is the checkpoint whose state and
    offsets a new one takes over.
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
        UserError: Something is missing or wrong that the user can put right.
    """
    # KeyboardInterrupt: by the handler that Spark sets for SIGINT, in the instant before it is taken back.
    with suppress(KeyboardInterrupt), stop_signals.orderly():
        return _run(settings)
    _say("monitor stopped")
    return 0


def _run(settings: MonitorSettings) -> int:
    topics = Topics(settings.topic_prefix)
    cluster = Cluster(settings.bootstrap_servers, kafka_config.for_librdkafka(settings.kafka_properties))
    admin = Admin(cluster)
    partitions = admin.require_topics(_rights(topics))
    topic_ids = admin.topic_ids(topics.counted())
    for sentence in admin.other_settings(topics.specs()):
        _log.warning("%s", sentence)
    if settings.logs_batches:
        admin.create_topics([topics.batches_spec()], partitions[topics.activations], _BROKERS_REPLICATION_FACTOR)
    kafka = _Kafka(cluster, admin, topics, partitions, topic_ids)
    with (
        Metrics(settings.metrics, cluster, topics, partitions) if settings.metrics else nullcontext() as metrics,
        ClassArchive() as classes,
    ):
        return _run_query(settings, kafka, metrics, classes)


@dataclass(frozen=True)
class _Kafka:
    """The cluster, and what was found there at the start."""

    cluster: Cluster
    admin: Admin
    topics: Topics
    partitions: Mapping[str, int]
    topic_ids: Mapping[str, str]


def _run_query(settings: MonitorSettings, kafka: _Kafka, metrics: Metrics | None, classes: ClassArchive) -> int:
    """Starts Spark and the query, and waits for its end."""
    location = _absolute(settings.checkpoint_location)
    spark = spark_session.create(location, settings.driver_memory, classes)
    with stop_signals.taken() as signals:
        if spark_session.is_submitted():
            spark_session.forward_signals(STOP_SIGNALS)
        try:
            progress_files.require_whole(spark, location)
            continue_from = settings.continue_from and _absolute(settings.continue_from)
            wanted = checkpoint.Wanted(settings.shards, settings.topic_prefix, kafka.topic_ids, continue_from)
            layout = checkpoint.settle(spark, location, wanted)
            checkpoint.keep(spark, location, layout)
            handed_over = handover.pending(spark, location, layout)
            wakes = spark.sparkContext.accumulator({}, WakesParam())
            signals.only_note()
            query = pipeline.start(
                spark,
                _pipeline_settings(settings, location, layout, handed_over),
                _shard_settings(settings, len(layout.keys)),
                kafka.partitions,
                WorkerReports(wakes, metrics.listen(spark, wakes) if metrics is not None else None),
            )
            wake_times = WakeTimes(layout.keys)

            def is_due() -> bool:
                wake_times.update(wakes.value)
                return wake_times.is_due()

            with Ticker(kafka.cluster, kafka.topics.ticks, settings.core.check_interval_ms, is_due) as ticker:

                def is_ready() -> bool:
                    if query.lastProgress is None:
                        return False
                    return handed_over is None or handover.end(spark, location, layout, query)

                if _await(is_ready, query, signals, _READY_POLL_INTERVAL_S):
                    classes.make(spark_session.class_path(spark))
                    _say("monitor ready")
                return _supervise(query, ticker, TopicWatch(kafka.admin, kafka.topic_ids), signals)
        finally:
            spark.stop()


def _rights(topics: Topics) -> Rights:
    inputs = topics.inputs()
    outputs = [spec.name for spec in topics.specs() if spec.name not in inputs]
    return rights(reads=inputs, writes=[topics.ticks, *outputs])


def _supervise(
    query: StreamingQuery,
    ticker: Ticker,
    topic_watch: TopicWatch,
    signals: StopSignals,
) -> int:
    """Waits for the query to end, for its topics to be deleted, or to be asked to stop; returns the exit code.

    Raises:
        AccessDeniedError: Kafka does not let the query go on.
    """

    def has_to_end() -> bool:
        return ticker.denied is not None or topic_watch.problem() is not None

    _await(has_to_end, query, signals, _POLL_INTERVAL_S)
    failure = failures.reason_of(query)
    denied = ticker.denied or access.java_denial(failure or "")
    if denied is not None:
        raise denied
    problem = None if signals.stop.is_set() else topic_watch.problem_now()
    if problem is not None:
        logs.report(f"topics were {problem}")
        query.stop()
        return 1
    if failure is not None:
        logs.report(f"the monitor's query failed: {failure}")
        return 1
    ticker.stop()
    # query.stop() would cancel the batch in progress. Without ticks there is soon none, unless events keep coming;
    # then a batch that has just begun is cancelled, and done again at the next start.
    while query.isActive and query.status["isTriggerActive"]:
        time.sleep(_READY_POLL_INTERVAL_S)
    query.stop()
    _say("monitor stopped")
    return 0


def _await(condition: Callable[[], bool], query: StreamingQuery, signals: StopSignals, interval_s: float) -> bool:
    """Waits for the condition; False if the query ended or a stop was asked for before."""
    while query.isActive and not signals.stop.wait(interval_s):
        if condition():
            return True
    return False


def _shard_settings(settings: MonitorSettings, shards: int) -> ShardSettings:
    core = replace(settings.core, max_queues_per_shard=-(-settings.max_queues // shards))
    return ShardSettings(core, settings.topic_prefix, settings.names, settings.activation_format, settings.logs_batches)


def _pipeline_settings(
    settings: MonitorSettings, location: str, layout: Layout, handed_over: Handover | None
) -> PipelineSettings:
    return PipelineSettings(
        bootstrap_servers=settings.bootstrap_servers,
        kafka_options=settings.kafka_properties,
        checkpoint_location=location,
        shard_keys=layout.keys,
        has_tick_source=layout.has_tick_source,
        trigger_interval_ms=settings.trigger_interval_ms,
        max_offsets_per_trigger=settings.max_offsets_per_trigger,
        starting_offsets=settings.starting_offsets,
        handover=handed_over,
    )


def _absolute(location: str) -> str:
    """A local folder by its full path; Spark would take a relative one from its own working directory."""
    return str(Path(location).absolute()) if "://" not in location else location


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
