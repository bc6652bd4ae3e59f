"""Runs the monitor: checks its requirements, starts the query and the tick, and stops both after the current batch."""

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from streaming.core.maintenance.schedule import PeriodicTask
from streaming.core.maintenance.tasks import ADJUST_ACTIVATION_TASKS
from streaming.daemons.monitor.lost_records import LostRecords, Offsets
from streaming.daemons.monitor.metrics import Metrics
from streaming.daemons.monitor.settings import MonitorSettings
from streaming.daemons.monitor.signs_of_life import SignsOfLife
from streaming.daemons.monitor.sole_monitor import GROUP_ID, MONITOR
from streaming.daemons.query import others_here
from streaming.daemons.query.application import Prepare, QueryProgram
from streaming.daemons.query.query_run import KafkaFound, QueryRun, absolute
from streaming.daemons.query.sole_program import SoleProgram
from streaming.daemons.query.ticker import Ticker
from streaming.kafka import client_properties
from streaming.kafka.access import Rights, rights
from streaming.kafka.admin import BROKERS_REPLICATION_FACTOR, Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.periodic_tasks import counted, published
from streaming.kafka.topic_watch import TopicWatch
from streaming.spark import progress_files
from streaming.spark.activation import checkpoint_layout, handover
from streaming.spark.activation.checkpoint_layout import Layout
from streaming.spark.activation.handover import Handover
from streaming.spark.activation.lost_mark import LostMark
from streaming.spark.activation.query import MAX_KEY_BYTES, QUERY_NAME, Beginning, prepare_query
from streaming.spark.activation.refusals import RefusalLog, RefusalsParam
from streaming.spark.activation.shard_settings import ShardSettings
from streaming.spark.query_listener import Listener
from streaming.spark.row_counts import counter
from streaming.spark.shard_worker import CLOCK_SAVE_INTERVAL_MS
from streaming.spark.sharded_query import QuerySettings, WorkerReports
from streaming.spark.wake_times import WakesParam, WakeTimes
from streaming.system.client_ids import client_id
from streaming.system.metrics_server import MetricsServer
from streaming.system.stop_signals import StopSignals
from streaming.wire.dead_letters import DEAD_LETTER_VALUE_BYTES
from streaming.wire.input_records import MAX_RECORD_BYTES
from streaming.wire.topics import Topics

_log = logging.getLogger(__name__)


def program(settings: MonitorSettings) -> QueryProgram:
    """Returns the monitor with these settings, ready to be run."""
    location = absolute(settings.options.checkpoint_location)
    return QueryProgram(MONITOR, location, settings.options.driver_memory, partial(_placed, settings), settings.metrics)


@contextmanager
def _placed(settings: MonitorSettings, server: MetricsServer | None) -> Iterator[Prepare]:
    """Checks the topics, and occupies the monitor's place while the block runs."""
    options = settings.options
    topics = Topics(settings.topic_prefix)
    cluster = Cluster(settings.bootstrap_servers, client_properties.for_librdkafka(settings.kafka_properties))
    admin = Admin(cluster)
    partitions = admin.require_topics(_rights(topics))
    admin.require_group(settings.topic_prefix + GROUP_ID)
    if not options.take_over:
        others_here.await_ends(admin, topics.prefix, [MONITOR], partial(_log.warning, "%s"))
    topic_ids = admin.topic_ids(topics.inputs())
    for sentence in admin.other_settings([spec for spec in topics.specs() if spec.name in partitions]):
        _log.warning("%s", sentence)
    if options.log_batches:
        admin.create_topics([topics.batches_spec()], partitions[topics.activations], BROKERS_REPLICATION_FACTOR)
    kafka = KafkaFound(cluster, admin, topics, partitions, topic_ids)
    with (
        Metrics(server, options.check_interval.ms, cluster, topics, partitions) if server else nullcontext() as metrics,
        SoleProgram(cluster, admin, MONITOR, topics.prefix, topics.ticks, partitions[topics.ticks]) as sole,
    ):
        yield partial(_prepared, settings, kafka, metrics, sole)


@contextmanager
def _prepared(  # noqa: PLR0913, PLR0917  (the parts of the monitor)
    settings: MonitorSettings,
    kafka: KafkaFound,
    metrics: Metrics | None,
    sole: SoleProgram,
    spark: SparkSession,
    signals: StopSignals,
) -> Iterator[QueryRun]:
    """Prepares the query and its helpers, which end with the block."""
    options = settings.options
    location = absolute(options.checkpoint_location)
    progress_files.require_whole(spark, location)
    continue_from = options.continue_from and absolute(options.continue_from)
    wanted = checkpoint_layout.Wanted(options.shards, settings.topic_prefix, kafka.topic_ids, continue_from)
    layout = checkpoint_layout.settle(spark, location, wanted)
    sole.join(checkpoint_layout.id_of(spark, location, layout), client_id(location), takes_over=options.take_over)
    # Only after the wait can no other monitor be writing to the older checkpoint.
    if layout.continued_from is not None:
        sole.wait()
    handed_over = handover.pending(spark, location, layout)
    mark = LostMark(spark, location, layout.continued_from if handed_over is not None else None)
    lost = LostRecords(kafka.cluster, kafka.topics, kafka.partitions, mark)
    if handed_over is not None:
        lost.begin(_read_so_far(spark, location, handed_over))
    wakes = spark.sparkContext.accumulator({}, WakesParam())
    reports = WorkerReports(wakes, counter(spark))
    refused = spark.sparkContext.accumulator(Counter(), RefusalsParam())
    if metrics is not None:
        metrics.listen(spark, QUERY_NAME, reports)
        metrics.lost = lost
    writer = prepare_query(
        spark,
        _query_settings(settings, location, layout),
        _beginning(settings, layout, handed_over, lost),
        _shard_settings(settings, len(layout.keys)),
        kafka.partitions,
        reports,
        refused,
    )
    sole.wait()
    if handed_over is None:
        lost.begin(_read_so_far(spark, location, handed_over))
    signs = SignsOfLife(sole, kafka.topics.ticks, _longest_pause_ms(settings))
    spark.streams.addListener(Listener(QUERY_NAME, lost, signs))
    checkpoint_layout.keep(spark, location, layout)

    def is_ready(query: StreamingQuery) -> bool:
        if query.lastProgress is None:
            return False
        return handed_over is None or handover.end(spark, location, layout, query)

    wake_times, refusal_log = WakeTimes(layout.keys), RefusalLog()
    adjust = {PeriodicTask(*ADJUST_ACTIVATION_TASKS): counted(lambda: reports.written.value[kafka.topics.tasks])}
    is_due = partial(wake_times.is_due_by, wakes)
    with (
        Ticker(kafka.cluster, kafka.topics.ticks, options.check_interval.ms, CLOCK_SAVE_INTERVAL_MS, is_due) as ticker,
        published("monitor", adjust, kafka.cluster, kafka.admin, kafka.topics) as periodic,
    ):
        if metrics is not None:
            metrics.tasks = periodic.tasks

        def look() -> None:
            refusal_log.look(refused.value)
            periodic.look()
            lost.look()

        yield QueryRun(
            MONITOR,
            sole,
            signals,
            spark,
            TopicWatch(kafka.admin, kafka.topic_ids),
            ticker,
            (),
            writer.start,
            is_ready,
            look,
        )


def _read_so_far(spark: SparkSession, location: str, handed_over: Handover | None) -> Offsets:
    """Returns the offsets up to which all records are read. Uncommitted batches run again."""
    newest = progress_files.newest_batch(spark, location, "commits")
    if newest is not None:
        return progress_files.end_offsets(spark, location, newest)
    return handed_over.offsets if handed_over is not None else {}


def _longest_pause_ms(settings: MonitorSettings) -> int:
    """Returns the longest time between two batches. Each tick begins a batch."""
    return max(CLOCK_SAVE_INTERVAL_MS, settings.options.check_interval.ms, settings.options.trigger_interval.ms)


def _rights(topics: Topics) -> Rights:
    inputs = topics.inputs()
    # Without the topic of periodic tasks, only `maintenance` lacks the monitor. Activators write their own topic.
    others = topics.service_maintenance, topics.activators
    outputs = [spec.name for spec in topics.specs() if spec.name not in (*inputs, *others)]
    return rights(reads=inputs, writes=[topics.ticks, *outputs])


def _shard_settings(settings: MonitorSettings, shards: int) -> ShardSettings:
    options = settings.options
    core = replace(options.core, max_queues_per_shard=-(-options.max_queues // shards))
    name, database = options.server_name, options.default_database
    return ShardSettings(core, settings.topic_prefix, name, database, options.activation_format, options.log_batches)


def _beginning(settings: MonitorSettings, layout: Layout, handed_over: Handover | None, lost: LostRecords) -> Beginning:
    return Beginning(
        settings.options.starting_offsets.value,
        layout.has_tick_source,
        handed_over,
        lost.marked_at,
        settings.options.max_offsets_per_trigger,
    )


def _query_settings(settings: MonitorSettings, location: str, layout: Layout) -> QuerySettings:
    return QuerySettings(
        name=QUERY_NAME,
        bootstrap_servers=settings.bootstrap_servers,
        kafka_options=settings.kafka_properties,
        checkpoint_location=location,
        shard_keys=layout.keys,
        trigger_interval_ms=settings.options.trigger_interval.ms,
        max_key_bytes=MAX_KEY_BYTES,
        max_value_bytes=DEAD_LETTER_VALUE_BYTES,
        longest_valid_bytes=MAX_RECORD_BYTES,
    )
