"""The command `queue-activation monitor`, which turns its options into the monitor's settings."""

from enum import StrEnum
from typing import Annotated

import typer

from streaming.cli.launching import launch
from streaming.cli.lines import say
from streaming.cli.options import (
    CheckpointLocation,
    DriverMemory,
    LogFormatOption,
    MetricsOptions,
    Place,
    TakeOver,
    TriggerInterval,
    duration,
    option,
)
from streaming.core.activation.settings import CoreSettings, Semantics
from streaming.system import durations, hints, logs, stop_signals
from streaming.system.durations import Duration
from streaming.system.logs import LogFormat
from streaming.wire.notifications import ActivationFormat

# The core defines the defaults of its own settings.
_CORE = CoreSettings()


class StartingOffsets(StrEnum):
    """The position at which reading of arrivals and receives begins without a checkpoint."""

    EARLIEST = "earliest"
    LATEST = "latest"


@stop_signals.orderly("monitor")
def monitor(
    checkpoint_location: CheckpointLocation = "checkpoints/monitor",
    continue_from: Annotated[
        str | None,
        option(
            "--continue-from",
            "Checkpoint of a stopped monitor. A new --checkpoint-location takes over its state, for example to change "
            "--shards.",
        ),
    ] = None,
    take_over: TakeOver = False,
    server_name: Annotated[str, option("--server-name", "Server name in notifications (ServerName, ce_source).")] = (
        "queue-activation"
    ),
    external_activation_timeout: Annotated[
        Duration,
        duration(
            "--external-activation-timeout",
            "Request another reader of unread messages if no RECEIVE follows within this time. `none`: never.",
            may_be_none=True,
        ),
    ] = durations.of(_CORE.external_activation_timeout_ms),
    quiet_window: Annotated[
        Duration,
        duration(
            "--quiet-window",
            "Activate one more reader of a queue with unread messages when no reader waits, and none has found the "
            "queue empty for this long.",
        ),
    ] = durations.of(_CORE.quiet_window_ms),
    check_interval: Annotated[
        Duration, duration("--check-interval", "Interval at which time-outs, quiet windows and leases are checked.")
    ] = durations.of(_CORE.check_interval_ms),
    trigger_interval: TriggerInterval = durations.parse("100ms"),
    shards: Annotated[
        int | None,
        option(
            "--shards", "Parts over which queues are spread. Default: the checkpoint's number, or 8.", min=1, max=10_000
        ),
    ] = None,
    semantics: Annotated[
        Semantics,
        option(
            "--semantics",
            "`observed`: start readers one per quiet window, as Service Broker does in practice. `literal`: start them "
            "as its documentation says.",
        ),
    ] = _CORE.semantics,
    starting_offsets: Annotated[
        StartingOffsets,
        option("--starting-offsets", "Where to begin reading arrivals and receives without a checkpoint."),
    ] = StartingOffsets.EARLIEST,
    max_offsets_per_trigger: Annotated[
        int,
        option(
            "--max-offsets-per-trigger",
            "Most records in a batch: this many arrivals, and this many receives and commands.",
            min=1,
        ),
    ] = 500_000,
    auto_create_queues: Annotated[
        bool,
        option(
            "--auto-create-queues/--no-auto-create-queues",
            "Monitor queues that no command has created, with the event notification `default`.",
        ),
    ] = _CORE.auto_create_queues,
    session_lease: Annotated[
        Duration, duration("--session-lease", "A session without records for this long no longer counts as waiting.")
    ] = durations.of(_CORE.session_lease_ms),
    transaction_lease: Annotated[
        Duration,
        duration(
            "--transaction-lease",
            "The transactions of a session without records for this long end, and their messages are unread again.",
        ),
    ] = durations.of(_CORE.transaction_lease_ms),
    task_lease: Annotated[
        Duration,
        duration(
            "--task-lease",
            "A task that its host has not reported for this long counts as lost. Hosts report every 20 s.",
        ),
    ] = durations.of(_CORE.task_lease_ms),
    queue_idle_expiry: Annotated[
        Duration,
        duration(
            "--queue-idle-expiry",
            "An empty queue that no command has defined is forgotten after this long without events.",
        ),
    ] = durations.of(_CORE.queue_idle_expiry_ms),
    max_queues: Annotated[
        int,
        option(
            "--max-queues",
            "Maximum number of queues, at 512 bytes of state each. Records that would exceed this become dead letters. "
            "Commands may create twice as many queues.",
            min=1,
        ),
    ] = 300_000,
    driver_memory: DriverMemory = "2g",
    activation_format: Annotated[
        ActivationFormat,
        option("--activation-format", "Format of notifications: JSON, or Service Broker's EVENT_INSTANCE in XML."),
    ] = ActivationFormat.JSON,
    log_batches: Annotated[
        bool,
        option(
            "--log-batches/--no-log-batches",
            "Write the input of each queue in each batch to the topic queue-batches, so that decisions can be traced.",
        ),
    ] = False,
    default_database: Annotated[
        str, option("--default-database", "Database name of queues whose own name contains none.")
    ] = "kafka",
    log_format: LogFormatOption = LogFormat.TEXT,
    *,
    metrics: MetricsOptions,
    place: Place,
) -> None:
    """Run the Spark job that decides when queues are activated.

    It reads the reports of senders and readers, and writes notifications, or requests a task, for each queue that needs
    one more reader. It prints `monitor ready` once the first batch is committed. Ctrl-C or SIGTERM stops it after the
    batch in progress; a second signal ends that wait.

    A DURATION is a number and a unit, such as 250ms, 5s, 2m, 1h or 7d.
    """
    from streaming.daemons.monitor.monitor import MonitorSettings, program
    from streaming.spark.activation.shard_settings import ServerNames

    logs.configure(log_format)
    core = CoreSettings(
        quiet_window_ms=quiet_window.ms,
        external_activation_timeout_ms=external_activation_timeout.ms,
        semantics=semantics,
        session_lease_ms=session_lease.ms,
        transaction_lease_ms=transaction_lease.ms,
        task_lease_ms=task_lease.ms,
        check_interval_ms=check_interval.ms,
        queue_idle_expiry_ms=queue_idle_expiry.ms,
        auto_create_queues=auto_create_queues,
    )
    for warning in short_leases(core):
        say(f"warning: {warning}", err=True)
    settings = MonitorSettings(
        bootstrap_servers=place.bootstrap_servers,
        kafka_properties=place.properties(),
        checkpoint_location=checkpoint_location,
        continue_from=continue_from,
        topic_prefix=place.topic_prefix,
        shards=shards,
        trigger_interval_ms=trigger_interval.ms,
        max_offsets_per_trigger=max_offsets_per_trigger,
        starting_offsets=starting_offsets.value,
        names=ServerNames(server_name, default_database),
        activation_format=activation_format,
        logs_batches=log_batches,
        metrics=metrics.address,
        max_queues=max_queues,
        driver_memory=driver_memory,
        takes_over=take_over,
        core=core,
    )
    launch(program(settings))


def short_leases(core: CoreSettings) -> list[str]:
    """Returns a warning for each lease that ends before its next report comes, if the reporter is one of ours."""
    from producers.session_reports import SESSION_ALIVE_INTERVAL_S
    from streaming.core.activation.task_handlers import REPORT_INTERVAL_MS

    alive_ms = round(SESSION_ALIVE_INTERVAL_S * 1000)
    leases = [
        ("--session-lease", core.session_lease_ms, "QueueReader reports", alive_ms, "a reader that waits is forgotten"),
        ("--transaction-lease", core.transaction_lease_ms, "QueueReader reports", alive_ms, "its messages come again"),
        ("--task-lease", core.task_lease_ms, "a host reports a task", REPORT_INTERVAL_MS, "a running task is lost"),
    ]
    return [
        f"{hints.option(option)} {durations.of(lease_ms)} ends before {who} again, every {durations.of(every_ms)}: "
        f"{effect} between two reports"
        for option, lease_ms, who, every_ms, effect in leases
        if lease_ms <= every_ms
    ]


def register(app: typer.Typer) -> None:
    """Adds the command of this module."""
    app.command()(monitor)
