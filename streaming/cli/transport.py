"""The command `queue-activation transport`: carries out the router's decisions."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from streaming.cli.options import Kafka, LogFormatOption, MetricsOptions, Place
from streaming.core.connections.forwarder import DEFAULT_FORWARD_BYTES
from streaming.core.maintenance.schedule import DEFAULT_INTERVAL_MS
from streaming.system import durations, logs, runs, stop_signals
from streaming.system.durations import Duration
from streaming.system.logs import LogFormat
from streaming.system.options import duration, option
from streaming.system.runs import State

_log = logging.getLogger(__name__)


@stop_signals.orderly("transport")
def transport(
    group_id: Annotated[
        str,
        option(
            "--group-id",
            "Consumer group of the transports that share the work. Default: PREFIXqueue-activation-transport.",
        ),
    ] = "",
    connections: Annotated[
        Path | None,
        option(
            "--connections",
            "TOML file with entries [[connections]]: `address`, a pattern, and `kafka_config`, the properties file for "
            "instances with such addresses. Others are reached with the properties of --kafka-config.",
            dir_okay=False,
        ),
    ] = None,
    forward_size: Annotated[
        int,
        option(
            "--forward-size",
            "Bytes of messages of other instances that may wait in memory to be sent on. More are dropped (11289).",
            min=0,
        ),
    ] = DEFAULT_FORWARD_BYTES,
    notification_interval: Annotated[
        Duration, duration("--notification-interval", "Interval of the notifications on which periodic tasks are done.")
    ] = durations.of(DEFAULT_INTERVAL_MS),
    log_format: LogFormatOption = LogFormat.TEXT,
    *,
    metrics: MetricsOptions,
    place: Place,
) -> None:
    """Put messages into the topics of queues, as the router has decided, until Ctrl-C or SIGTERM.

    It also sends messages to other instances, whose Kafka it must reach. Prints `transport ready`. Any number of
    transports share the partitions of service-decisions. A message whose delivery fails goes back to the router, or to
    service-dead-letters if it can never be delivered. If decisions of a partition are lost, the transport stops
    carrying out that partition, says so each minute, and ends with exit code 1.
    """
    from streaming.daemons.transport.connections_file import clusters
    from streaming.daemons.transport.settings import TransportSettings
    from streaming.daemons.transport.transport import READY, Transport

    logs.configure(log_format)
    say = logs.line_printer(_log, log_format, READY)
    kafka = place.cluster()
    cluster_of = clusters(connections, kafka, lambda path: Kafka("", path).cluster().config)
    settings = TransportSettings(
        kafka,
        cluster_of,
        place.topic_prefix,
        group_id,
        metrics.metrics_port,
        metrics.metrics_host,
        notification_interval_ms=notification_interval.ms,
        forward_bytes=forward_size,
    )
    noted = runs.noted_alone("transport", place.bootstrap_servers, place.topic_prefix, State.READY)
    with stop_signals.taken() as signals, Transport(settings, say) as running, noted:
        signals.only_note()
        is_whole = running.run(signals.stop)
    if not is_whole:
        raise typer.Exit(1)
