"""Runs the monitor: checks what it needs, starts the query and the tick, and stops both after the batch in progress."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from pyspark.sql.streaming import StreamingQuery

from streaming import checkpoint, failures, kafka_config, pipeline, progress_files, spark_session
from streaming.activations import ActivationFormat
from streaming.admin import Admin, Cluster
from streaming.core.settings import CoreSettings
from streaming.outputs import ServerNames
from streaming.pipeline import PipelineSettings
from streaming.shards import ShardSettings
from streaming.ticker import Ticker
from streaming.topic_watch import TopicWatch
from streaming.topics import Topics
from streaming.wakes import WakesParam, WakeTimes

# A shard's state is written whole when one of its queues changes, so shards stay small: 1,000 to 2,000 queues each
# at 10,000 queues. Each costs a batch some 3 ms whatever is in it, so there are no more of them.
DEFAULT_SHARDS = 8

# How often the main thread looks whether it is asked to stop, or whether the query has ended by itself.
_POLL_INTERVAL_S = 0.25
_READY_POLL_INTERVAL_S = 0.05

# Kafka's own word for "as the broker is set".
_BROKERS_REPLICATION_FACTOR = -1


@dataclass(frozen=True)
class MonitorSettings:
    """What `queue-activation monitor` is told; `shards` is None for the checkpoint's number, or the default."""

    bootstrap_servers: str
    kafka_properties: Mapping[str, str]
    checkpoint_location: str
    topic_prefix: str
    shards: int | None
    trigger_interval_ms: int
    max_offsets_per_trigger: int
    starting_offsets: str
    names: ServerNames
    activation_format: ActivationFormat
    logs_batches: bool
    max_queues: int
    core: CoreSettings


def run(settings: MonitorSettings) -> int:
    """Runs the monitor until SIGTERM, Ctrl-C or a failure; returns the exit code.

    Raises:
        UserError: Something is missing or wrong that the user can put right.
    """
    topics = Topics(settings.topic_prefix)
    cluster = Cluster(settings.bootstrap_servers, kafka_config.for_librdkafka(settings.kafka_properties))
    admin = Admin(cluster)
    partitions = admin.require_topics(topics)
    topic_ids = admin.topic_ids(topics.counted())
    for sentence in admin.other_settings(topics.specs()):
        _say(f"warning: {sentence}")
    if settings.logs_batches:
        admin.create_topics([topics.batches_spec()], partitions[topics.activations], _BROKERS_REPLICATION_FACTOR)
    location = _absolute(settings.checkpoint_location)
    spark = spark_session.create(location)
    # Only now: Spark sets a handler of its own for SIGINT, which would cancel the batch in progress.
    with _stop_signals() as stop_is_asked:
        try:
            progress_files.require_whole(spark, location)
            wanted = checkpoint.Wanted(settings.shards, settings.topic_prefix, topic_ids)
            layout = checkpoint.settle(spark, location, wanted, DEFAULT_SHARDS)
            wakes = spark.sparkContext.accumulator({}, WakesParam())
            query = pipeline.start(
                spark,
                _pipeline_settings(settings, location, layout.keys),
                _shard_settings(settings, len(layout.keys)),
                partitions,
                wakes,
            )
            wake_times = WakeTimes(layout.keys)

            def is_due() -> bool:
                wake_times.update(wakes.value)
                return wake_times.is_due()

            with Ticker(cluster, topics.ticks, settings.core.check_interval_ms, is_due) as ticker:
                return _supervise(query, ticker, TopicWatch(admin, topic_ids), stop_is_asked)
        finally:
            spark.stop()


def _supervise(query: StreamingQuery, ticker: Ticker, topic_watch: TopicWatch, stop_is_asked: threading.Event) -> int:
    """Waits for the query to end, for its topics to be deleted, or to be asked to stop."""
    is_ready = _await(lambda: query.lastProgress is not None, query, stop_is_asked, _READY_POLL_INTERVAL_S)
    if is_ready:
        _say("monitor ready")
        _await(lambda: topic_watch.problem() is not None, query, stop_is_asked, _POLL_INTERVAL_S)
    failure = failures.reason_of(query)
    problem = None if stop_is_asked.is_set() else topic_watch.problem_now()
    if problem is not None:
        _say(f"error: topics were {problem}")
        query.stop()
        return 1
    if failure is not None:
        _say(f"error: the monitor's query failed: {failure}")
        return 1
    ticker.stop()
    # query.stop() would cancel the batch in progress. Without ticks there is soon none, unless events keep coming;
    # then a batch that has just begun is cancelled, and done again at the next start.
    idle = threading.Event()
    while query.isActive and query.status["isTriggerActive"]:
        idle.wait(_READY_POLL_INTERVAL_S)
    query.stop()
    _say("monitor stopped")
    return 0


def _await(
    condition: Callable[[], bool], query: StreamingQuery, stop_is_asked: threading.Event, interval_s: float
) -> bool:
    """Waits for the condition; False if the query ended or a stop was asked for before."""
    while not stop_is_asked.wait(interval_s):
        if condition():
            return True
        if not query.isActive:
            return False
    return False


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set while the block runs."""
    stop_is_asked = threading.Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        stop_is_asked.set()

    handlers = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop_is_asked
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _shard_settings(settings: MonitorSettings, shards: int) -> ShardSettings:
    core = replace(settings.core, max_queues_per_shard=-(-settings.max_queues // shards))
    return ShardSettings(core, settings.topic_prefix, settings.names, settings.activation_format, settings.logs_batches)


def _pipeline_settings(settings: MonitorSettings, location: str, shard_keys: list[int]) -> PipelineSettings:
    return PipelineSettings(
        bootstrap_servers=settings.bootstrap_servers,
        kafka_options=settings.kafka_properties,
        checkpoint_location=location,
        shard_keys=shard_keys,
        trigger_interval_ms=settings.trigger_interval_ms,
        max_offsets_per_trigger=settings.max_offsets_per_trigger,
        starting_offsets=settings.starting_offsets,
    )


def _absolute(location: str) -> str:
    """A local folder by its full path; Spark would take a relative one from its own working directory."""
    return str(Path(location).absolute()) if "://" not in location else location


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
