"""The command `queue-activation monitor`: its options, made into the monitor's settings."""

from enum import StrEnum
from typing import Annotated

import typer

from streaming.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    KafkaConfig,
    LogFormatOption,
    TopicPrefix,
    duration,
    kafka_properties,
    option,
)
from streaming.core.activation.settings import CoreSettings, Semantics
from streaming.system import durations, logs, stop_signals
from streaming.system.durations import Duration
from streaming.system.logs import LogFormat
from streaming.wire.notifications import ActivationFormat

# The defaults of what the core decides by stand there.
_CORE = CoreSettings()


class StartingOffsets(StrEnum):
    """Where the arrivals and receives begin without a checkpoint."""

    EARLIEST = "earliest"
    LATEST = "latest"


@stop_signals.orderly("monitor")
def monitor(
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    checkpoint_location: Annotated[
        str, option("--checkpoint-location", "Folder or URI where progress and state are kept.")
    ] = "checkpoints/monitor",
    continue_from: Annotated[
        str | None,
        option(
            "--continue-from",
            "Checkpoint of a stopped monitor: a new --checkpoint-location goes on from it, with other --shards.",
        ),
    ] = None,
    topic_prefix: TopicPrefix = "",
    server_name: Annotated[str, option("--server-name", "ServerName and ce_source of the notifications.")] = (
        "queue-activation"
    ),
    external_activation_timeout: Annotated[
        Duration,
        duration(
            "--external-activation-timeout",
            "Without a RECEIVE, notify again this long after a notification, if messages are unread; `none`: never.",
            may_be_none=True,
        ),
    ] = durations.of(_CORE.external_activation_timeout_ms),
    quiet_window: Annotated[
        Duration,
        duration(
            "--quiet-window",
            "While messages are unread, request one more reader when none waits and none has found the queue empty "
            "for this long.",
        ),
    ] = durations.of(_CORE.quiet_window_ms),
    check_interval: Annotated[
        Duration, duration("--check-interval", "How often queues are looked at without an event.")
    ] = durations.of(_CORE.check_interval_ms),
    trigger_interval: Annotated[
        Duration, duration("--trigger-interval", "A batch begins at most this often.")
    ] = durations.parse("100ms"),
    shards: Annotated[
        int | None,
        option("--shards", "Parts the queues are spread over; a checkpoint keeps its number (8).", min=1, max=10_000),
    ] = None,
    semantics: Annotated[
        Semantics,
        option(
            "--semantics",
            "`observed`: as Service Broker was seen to behave, readers start one per quiet window. `literal`: as its "
            "documentation says word for word.",
        ),
    ] = _CORE.semantics,
    starting_offsets: Annotated[
        StartingOffsets, option("--starting-offsets", "Where arrivals and receives begin without a checkpoint.")
    ] = StartingOffsets.EARLIEST,
    max_offsets_per_trigger: Annotated[
        int, option("--max-offsets-per-trigger", "Limit of a batch: arrivals, and as many of the rest.", min=1)
    ] = 500_000,
    auto_create_queues: Annotated[
        bool,
        option("--auto-create-queues/--no-auto-create-queues", "Monitor queues that no command has created."),
    ] = _CORE.auto_create_queues,
    session_lease: Annotated[
        Duration, duration("--session-lease", "How long the wait of a silent session counts.")
    ] = durations.of(_CORE.session_lease_ms),
    transaction_lease: Annotated[
        Duration, duration("--transaction-lease", "How long the transactions of a silent session stay open.")
    ] = durations.of(_CORE.transaction_lease_ms),
    task_lease: Annotated[
        Duration, duration("--task-lease", "How long an activated task that is not heard of counts as running.")
    ] = durations.of(_CORE.task_lease_ms),
    queue_idle_expiry: Annotated[
        Duration, duration("--queue-idle-expiry", "After how long an idle queue that no command defined is forgotten.")
    ] = durations.of(_CORE.queue_idle_expiry_ms),
    max_queues: Annotated[
        int,
        option(
            "--max-queues",
            "Most queues, at 512 bytes of state each; records beyond that become dead letters. Commands may create "
            "up to twice as many.",
            min=1,
        ),
    ] = 300_000,
    driver_memory: Annotated[
        str,
        option("--driver-memory", "Heap of Spark's JVM, such as 4g; spark-submit has its own option."),
    ] = "2g",
    activation_format: Annotated[
        ActivationFormat,
        option("--activation-format", "Notifications as JSON, or as Service Broker's EVENT_INSTANCE in XML."),
    ] = ActivationFormat.JSON,
    log_batches: Annotated[
        bool,
        option(
            "--log-batches/--no-log-batches",
            "Write to queue-batches what each batch gave each queue, so that a decision can be followed up.",
        ),
    ] = False,
    default_database: Annotated[
        str, option("--default-database", "DatabaseName of queues whose name has no database.")
    ] = "kafka",
    metrics_port: Annotated[
        int | None,
        option("--metrics-port", "Serve /metrics, /healthz and /readyz on this port (not served).", min=1, max=65535),
    ] = None,
    metrics_host: Annotated[str, option("--metrics-host", "Address to serve them on.")] = "127.0.0.1",
    log_format: LogFormatOption = LogFormat.TEXT,
    kafka_config: KafkaConfig = None,
) -> None:
    """Run the Spark job that decides when queues are activated.

    Prints `monitor ready` once the first batch is committed. Ctrl-C or SIGTERM stops it after the batch in progress; a
    second signal ends the waiting.
    """
    from streaming.daemons.monitor.metrics import MetricsSettings
    from streaming.daemons.monitor.monitor import MonitorSettings, run
    from streaming.spark.activation.shard_settings import ServerNames

    logs.configure(log_format)
    settings = MonitorSettings(
        bootstrap_servers=bootstrap_servers,
        kafka_properties=kafka_properties(kafka_config),
        checkpoint_location=checkpoint_location,
        continue_from=continue_from,
        topic_prefix=topic_prefix,
        shards=shards,
        trigger_interval_ms=trigger_interval.ms,
        max_offsets_per_trigger=max_offsets_per_trigger,
        starting_offsets=starting_offsets.value,
        names=ServerNames(server_name, default_database),
        activation_format=activation_format,
        logs_batches=log_batches,
        metrics=None if metrics_port is None else MetricsSettings(metrics_host, metrics_port, check_interval.ms),
        max_queues=max_queues,
        driver_memory=driver_memory,
        core=CoreSettings(
            quiet_window_ms=quiet_window.ms,
            external_activation_timeout_ms=external_activation_timeout.ms,
            semantics=semantics,
            session_lease_ms=session_lease.ms,
            transaction_lease_ms=transaction_lease.ms,
            task_lease_ms=task_lease.ms,
            check_interval_ms=check_interval.ms,
            queue_idle_expiry_ms=queue_idle_expiry.ms,
            auto_create_queues=auto_create_queues,
        ),
    )
    raise typer.Exit(run(settings))


def register(app: typer.Typer) -> None:
    """Adds the command of this module."""
    app.command()(monitor)
