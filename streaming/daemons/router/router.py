"""Runs the router: checks the requirements, starts the query and the tick, and stops both after the current batch."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial

from msgspec import structs
from pyspark import Accumulator
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from streaming.core.activation.settings import Semantics
from streaming.core.conversations.settings import ConversationSettings
from streaming.core.maintenance import tasks
from streaming.core.maintenance.schedule import PeriodicTask
from streaming.daemons.query import others_here
from streaming.daemons.query.application import Prepare, QueryProgram
from streaming.daemons.query.query_run import KafkaFound, QueryRun, absolute
from streaming.daemons.query.sole_program import SoleProgram
from streaming.daemons.query.ticker import Ticker
from streaming.daemons.router.metrics import RouterMetrics
from streaming.daemons.router.progress import ProgressWriter
from streaming.daemons.router.restoration import NO_COPY, Copy, gather, read_copy
from streaming.daemons.router.settings import RouterSettings
from streaming.daemons.router.sole_router import GROUP_ID, ROUTER
from streaming.daemons.router.traces import Planned, problem_of, read_traces
from streaming.errors import UserError
from streaming.kafka import client_properties
from streaming.kafka.access import Rights, rights
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.periodic_tasks import Work, counted, published
from streaming.kafka.topic_watch import TopicWatch
from streaming.spark import progress_files, query_failure
from streaming.spark.query_listener import Listener
from streaming.spark.routing import checkpoint_layout, restored_file
from streaming.spark.routing.checkpoint_layout import RouterLayout, Wanted
from streaming.spark.routing.query import MAX_KEY_BYTES, MAX_VALUE_BYTES, QUERY_NAME, prepare_query
from streaming.spark.routing.restored_file import Restoration
from streaming.spark.routing.shard_settings import RouterShardSettings
from streaming.spark.row_counts import counter
from streaming.spark.sharded_query import QuerySettings, WorkerReports
from streaming.spark.wake_times import WakesParam, WakeTimes
from streaming.system import hints, logs
from streaming.system.client_ids import client_id
from streaming.system.metrics_server import MetricsServer
from streaming.system.stop_signals import StopSignals
from streaming.wire.topics import Topics

# Interval at which the router checks whether a shard is due, as the monitor does by default.
CHECK_INTERVAL_MS = 1_000
# A tick is written at least this often, so that shards clean up and write their clocks.
LONGEST_PAUSE_MS = 10_000
_POLL_INTERVAL_S = 0.05
_TASKS = (
    tasks.DELETE_STALE_MESSAGES,
    tasks.RECLASSIFY_CONVERSATIONS,
    tasks.RESTART_BROKERS,
    tasks.ASK_FOR_ROUTES,
    tasks.RESUME_CLEAN_UP,
)

_log = logging.getLogger(__name__)


def program(settings: RouterSettings) -> QueryProgram:
    """Returns the router with these settings, ready to be run."""
    location = absolute(settings.options.checkpoint_location)
    return QueryProgram(ROUTER, location, settings.options.driver_memory, partial(_placed, settings), settings.metrics)


@contextmanager
def _placed(settings: RouterSettings, server: MetricsServer | None) -> Iterator[Prepare]:
    """Checks the topics, and keeps the router's place while the block runs."""
    topics = Topics(settings.topic_prefix)
    cluster = Cluster(settings.bootstrap_servers, client_properties.for_librdkafka(settings.kafka_properties))
    admin = Admin(cluster)
    partitions = admin.require_topics(_rights(topics))
    if problem := problem_of_partitions(topics, partitions):
        raise UserError(problem)
    admin.require_group(settings.topic_prefix + GROUP_ID)
    if not settings.options.take_over:
        others_here.await_ends(admin, topics.prefix, [ROUTER], partial(_log.warning, "%s"))
    # If service-decisions was replaced, the state would go on with numbers that the transport does not expect.
    topic_ids = admin.topic_ids([*topics.service_inputs(), topics.service_decisions])
    for sentence in admin.other_settings([spec for spec in topics.service_specs() if spec.name in partitions]):
        _log.warning("%s", sentence)
    kafka = KafkaFound(cluster, admin, topics, partitions, topic_ids)
    ticks = topics.service_ticks
    with (
        RouterMetrics(server, CHECK_INTERVAL_MS, cluster, topics, partitions) if server else nullcontext() as metrics,
        SoleProgram(cluster, admin, ROUTER, topics.prefix, ticks, partitions[ticks]) as sole,
    ):
        yield partial(_prepared, settings, kafka, metrics, sole)


def _rights(topics: Topics) -> Rights:
    written = [*topics.service_outputs(), topics.service_progress, topics.service_maintenance, topics.service_ticks]
    # The router reads its own traces when it starts.
    return rights(reads=[*topics.service_inputs(), topics.service_decisions, topics.service_progress], writes=written)


def problem_of_partitions(topics: Topics, partitions: Mapping[str, int]) -> str | None:
    """Returns which topics have a wrong number of partitions; None if all have the right number."""
    wanted = partitions[topics.service_messages]
    alike = [spec.name for spec in topics.service_specs() if spec.is_partitioned and spec.name in partitions]
    alone = (topics.service_commands, topics.service_reports)
    wrong = [f"{name} has {partitions[name]} instead of {wanted}" for name in alike if partitions[name] != wanted]
    wrong += [f"{name} has {partitions[name]} instead of 1" for name in alone if partitions[name] != 1]
    if not wrong:
        return None
    return (
        f"Topics have a wrong number of partitions: {', '.join(wrong)}. Their partitions correspond to those of "
        f"{topics.service_messages}. Delete these topics, or use another --topic-prefix, and run "
        f"`{hints.command('topics')}`."
    )


@contextmanager
def _prepared(  # noqa: PLR0913, PLR0917  (the parts of the router)
    settings: RouterSettings,
    kafka: KafkaFound,
    metrics: RouterMetrics | None,
    sole: SoleProgram,
    spark: SparkSession,
    signals: StopSignals,
) -> Iterator[QueryRun]:
    """Prepares the query and the parts beside it. These parts end with the block."""
    location = absolute(settings.options.checkpoint_location)
    progress_files.require_whole(spark, location)
    layout, is_there = _settle(spark, settings, kafka, location)
    sole.join(layout.id, client_id(location), takes_over=settings.options.take_over)
    # From here on no other router can add traces or batches.
    sole.wait()
    layout, restored = _begin(spark, settings, kafka, layout, is_there=is_there)
    secret, instance = layout.secret or layout.id, settings.instance
    conversations = ConversationSettings(is_literal=settings.options.semantics is Semantics.LITERAL)
    count, keep_ms = len(layout.shard_keys), settings.options.keep.ms
    shard_settings = RouterShardSettings(
        settings.topic_prefix, count, layout.generation, instance, secret, keep_ms, conversations
    )
    wakes = spark.sparkContext.accumulator({}, WakesParam())
    query_settings = _query_settings(settings, location, layout)
    reports, done = WorkerReports(wakes, counter(spark)), counter(spark)
    if metrics is not None:
        metrics.listen(spark, QUERY_NAME, reports)
        metrics.decided = done
    prepare = partial(prepare_query, spark, query_settings, restored)
    writer = prepare(shard_settings, kafka.partitions, reports, done)
    checkpoint_layout.keep(spark, location, layout)
    older = checkpoint_layout.unfinished(spark, location, shard_settings)
    signals.only_note()
    if older is not None:
        _finish(prepare(older, kafka.partitions, reports, done), signals)
    checkpoint_layout.keep_settings(spark, location, shard_settings)
    wake_times = WakeTimes(layout.shard_keys)
    watch = TopicWatch(kafka.admin, kafka.topic_ids, checkpoint_layout.advice_about)
    ticks, is_due = kafka.topics.service_ticks, partial(wake_times.is_due_by, wakes)

    def is_ready(query: StreamingQuery) -> bool:
        if restored is not None:
            return restored_file.end(spark, location, count, query)
        return query.lastProgress is not None

    with (
        ProgressWriter(kafka.cluster, kafka.topics, layout.generation) as progress,
        Ticker(kafka.cluster, ticks, CHECK_INTERVAL_MS, LONGEST_PAUSE_MS, is_due) as ticker,
        published("router", _periodic_tasks(done), kafka.cluster, kafka.admin, kafka.topics) as periodic,
    ):
        if metrics is not None:
            metrics.tasks = periodic.tasks
        spark.streams.addListener(Listener(QUERY_NAME, progress))
        yield QueryRun(ROUTER, sole, signals, spark, watch, ticker, (progress,), writer.start, is_ready, periodic.look)


def _periodic_tasks(done: "Accumulator[Counter[str]]") -> dict[PeriodicTask, Work]:
    """Returns the periodic tasks of the shards. A shard does a due task by itself, and reports the work."""

    def work(name: str) -> Work:
        return counted(lambda: done.value[name])

    return {PeriodicTask(*task): work(task.name) for task in _TASKS}


def _finish(writer: DataStreamWriter, signals: StopSignals) -> None:
    """Runs the last batch again with its own settings, and further batches to the ends of the topics.

    Raises:
        SystemExit: The query failed. The log has the reason.
        Stopped: A signal has arrived.
    """
    _log.info("Completing the last batch with the settings with which it was begun")
    query = writer.trigger(availableNow=True).start()
    while query.isActive and not signals.stop.wait(_POLL_INTERVAL_S):
        pass
    failure = query_failure.reason_of(query)
    if failure is not None:
        logs.report(f"The router's query failed: {failure}")
        raise SystemExit(1)
    signals.check()


def _settle(
    spark: SparkSession, settings: RouterSettings, kafka: KafkaFound, location: str
) -> tuple[RouterLayout, bool]:
    """Returns the layout of a checkpoint, and whether the checkpoint exists."""
    partitions = kafka.partitions[kafka.topics.service_messages]
    return checkpoint_layout.settle(spark, location, Wanted(settings.topic_prefix, partitions, kafka.topic_ids))


def _begin(
    spark: SparkSession, settings: RouterSettings, kafka: KafkaFound, layout: RouterLayout, *, is_there: bool
) -> tuple[RouterLayout, Restoration | None]:
    """Returns the layout, and the beginning of a restored router. The beginning is None once all shards are stored.

    Raises:
        UserError: The checkpoint is older than the work of the last router, or missing, and is not to be restored.
    """
    location, restore = absolute(settings.options.checkpoint_location), settings.options.restore
    traces = read_traces(kafka.cluster, kafka.topics, kafka.partitions)
    if restore is None or is_there or not traces.generation:
        restored = restored_file.read(spark, location)
        begun = restored.offsets if restored is not None else {}
        planned = _planned(spark, location, layout, begun, kafka.topics.prefix) if is_there else None
        if problem := problem_of(traces, planned, location):
            raise UserError(problem)
        return layout, restored
    copy = None if restore == NO_COPY else _copy(spark, settings, kafka, absolute(restore))
    restored = gather(kafka.cluster, kafka.topics, len(layout.shard_keys), traces, copy)
    ended = sum(len(shard.suspects) for shard in restored.shards)
    _log.warning("Restoring. %d conversations may have gone on since the copy, and end with an Error", ended)
    restored_file.save(spark, location, restored)
    return structs.replace(layout, generation=restored.generation), restored


def _planned(
    spark: SparkSession, location: str, layout: RouterLayout, begun: Mapping[str, Mapping[str, int]], prefix: str
) -> Planned:
    """Returns the newest batch of a checkpoint; `begun`: the offsets with which the checkpoint was restored."""
    batch = progress_files.newest_batch(spark, location, "offsets")
    last = {} if batch is None else progress_files.end_offsets(spark, location, batch)
    ends = {topic.removeprefix(prefix): found for topic, found in {**begun, **last}.items()}
    return Planned(layout.generation, batch, ends)


def _copy(spark: SparkSession, settings: RouterSettings, kafka: KafkaFound, location: str) -> Copy:
    layout, is_there = _settle(spark, settings, kafka, location)
    if not is_there:
        without = hints.option("--restore", NO_COPY)
        raise UserError(f"There is no checkpoint of a router at {location}. {without} restores without a copy.")
    return read_copy(spark, location, layout)


def _query_settings(settings: RouterSettings, location: str, layout: RouterLayout) -> QuerySettings:
    return QuerySettings(
        name=QUERY_NAME,
        bootstrap_servers=settings.bootstrap_servers,
        kafka_options=settings.kafka_properties,
        checkpoint_location=location,
        shard_keys=layout.shard_keys,
        trigger_interval_ms=settings.options.trigger_interval.ms,
        max_key_bytes=MAX_KEY_BYTES,
        max_value_bytes=MAX_VALUE_BYTES,
        longest_valid_bytes=MAX_VALUE_BYTES,
    )
