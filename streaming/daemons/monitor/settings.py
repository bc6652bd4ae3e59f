"""The settings of a monitor."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from streaming.core.activation.settings import CoreSettings, Semantics
from streaming.daemons.query.options import CheckpointLocation, QueryOptions, QuerySettings
from streaming.system import durations
from streaming.system.durations import Duration
from streaming.system.options import duration, option
from streaming.wire.notifications import ActivationFormat

# The core defines the defaults of its own settings.
_CORE = CoreSettings()


class StartingOffsets(StrEnum):
    """The position at which reading of arrivals and receives begins without a checkpoint."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True)
class MonitorOptions(QueryOptions):
    """The options that only `queue-activation monitor` has.

    `shards` is None for the checkpoint's number, or for the default in a new checkpoint.
    """

    checkpoint_location: CheckpointLocation = "checkpoints/monitor"
    continue_from: Annotated[
        str | None,
        option(
            "--continue-from",
            "Checkpoint of a stopped monitor. A new --checkpoint-location takes over its state, for example to change "
            "--shards.",
        ),
    ] = None
    server_name: Annotated[str, option("--server-name", "Server name in notifications (ServerName, ce_source).")] = (
        "queue-activation"
    )
    external_activation_timeout: Annotated[
        Duration,
        duration(
            "--external-activation-timeout",
            "Request another reader of unread messages if no RECEIVE follows within this time. `none`: never.",
            may_be_none=True,
        ),
    ] = durations.of(_CORE.external_activation_timeout_ms)
    quiet_window: Annotated[
        Duration,
        duration(
            "--quiet-window",
            "Activate one more reader of a queue with unread messages when no reader waits, and none has found the "
            "queue empty for this long.",
        ),
    ] = durations.of(_CORE.quiet_window_ms)
    check_interval: Annotated[
        Duration, duration("--check-interval", "Interval at which time-outs, quiet windows and leases are checked.")
    ] = durations.of(_CORE.check_interval_ms)
    shards: Annotated[
        int | None,
        option(
            "--shards", "Parts over which queues are spread. Default: the checkpoint's number, or 8.", min=1, max=10_000
        ),
    ] = None
    semantics: Annotated[
        Semantics,
        option(
            "--semantics",
            "`observed`: start readers one per quiet window, as Service Broker does in practice. `literal`: start them "
            "as its documentation says.",
        ),
    ] = _CORE.semantics
    starting_offsets: Annotated[
        StartingOffsets,
        option("--starting-offsets", "Where to begin reading arrivals and receives without a checkpoint."),
    ] = StartingOffsets.EARLIEST
    max_offsets_per_trigger: Annotated[
        int,
        option(
            "--max-offsets-per-trigger",
            "Most records in a batch: this many arrivals, and this many receives and commands.",
            min=1,
        ),
    ] = 500_000
    auto_create_queues: Annotated[
        bool,
        option(
            "--auto-create-queues/--no-auto-create-queues",
            "Monitor queues that no command has created, with the event notification `default`.",
        ),
    ] = _CORE.auto_create_queues
    session_lease: Annotated[
        Duration, duration("--session-lease", "A session without records for this long no longer counts as waiting.")
    ] = durations.of(_CORE.session_lease_ms)
    transaction_lease: Annotated[
        Duration,
        duration(
            "--transaction-lease",
            "The transactions of a session without records for this long end, and their messages are unread again.",
        ),
    ] = durations.of(_CORE.transaction_lease_ms)
    task_lease: Annotated[
        Duration,
        duration(
            "--task-lease",
            "A task that its host has not reported for this long counts as lost. Hosts report every 20 s.",
        ),
    ] = durations.of(_CORE.task_lease_ms)
    queue_idle_expiry: Annotated[
        Duration,
        duration(
            "--queue-idle-expiry",
            "An empty queue that no command has defined is forgotten after this long without events.",
        ),
    ] = durations.of(_CORE.queue_idle_expiry_ms)
    max_queues: Annotated[
        int,
        option(
            "--max-queues",
            "Maximum number of queues, at 512 bytes of state each. Records that would exceed this become dead letters. "
            "Commands may create twice as many queues.",
            min=1,
        ),
    ] = 300_000
    activation_format: Annotated[
        ActivationFormat,
        option("--activation-format", "Format of notifications: JSON, or Service Broker's EVENT_INSTANCE in XML."),
    ] = ActivationFormat.JSON
    log_batches: Annotated[
        bool,
        option(
            "--log-batches/--no-log-batches",
            "Write the input of each queue in each batch to the topic queue-batches, so that decisions can be traced.",
        ),
    ] = False
    default_database: Annotated[
        str, option("--default-database", "Database name of queues whose own name contains none.")
    ] = "kafka"

    @property
    def core(self) -> CoreSettings:
        """Returns the settings of the core."""
        return CoreSettings(
            quiet_window_ms=self.quiet_window.ms,
            external_activation_timeout_ms=self.external_activation_timeout.ms,
            semantics=self.semantics,
            session_lease_ms=self.session_lease.ms,
            transaction_lease_ms=self.transaction_lease.ms,
            task_lease_ms=self.task_lease.ms,
            check_interval_ms=self.check_interval.ms,
            queue_idle_expiry_ms=self.queue_idle_expiry.ms,
            auto_create_queues=self.auto_create_queues,
        )


@dataclass(frozen=True)
class MonitorSettings(QuerySettings):
    """The settings of `queue-activation monitor`.

    Attributes:
        options: The options that only the monitor has.
    """

    options: MonitorOptions
