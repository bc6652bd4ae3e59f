"""The command `queue-activation router`, which turns its options into the router's settings."""

from typing import Annotated

import typer

from streaming.cli.launching import launch
from streaming.cli.options import (
    CheckpointLocation,
    DriverMemory,
    InstanceOptions,
    LogFormatOption,
    MetricsOptions,
    Place,
    TakeOver,
    TriggerInterval,
    duration,
    option,
)
from streaming.core.activation.settings import Semantics
from streaming.system import durations, logs, stop_signals
from streaming.system.durations import Duration
from streaming.system.logs import LogFormat


@stop_signals.orderly("router")
def router(
    checkpoint_location: CheckpointLocation = "checkpoints/router",
    restore: Annotated[
        str | None,
        option(
            "--restore",
            "Begin a new checkpoint although routers have worked before: the location of an older copy of the lost "
            "checkpoint, or `none`. Conversations that may have gone on since the copy end with an Error.",
            metavar="COPY",
        ),
    ] = None,
    take_over: TakeOver = False,
    semantics: Annotated[
        Semantics,
        option(
            "--semantics",
            "While a route is asked for: `observed` holds all conversations with its service, `literal` only the one "
            "that asked. The others then go by a route for any service.",
        ),
    ] = Semantics.OBSERVED,
    keep: Annotated[
        Duration,
        duration("--keep", "Records of service-messages that no conversation needs are deleted after this long."),
    ] = durations.parse("24h"),
    trigger_interval: TriggerInterval = durations.parse("100ms"),
    driver_memory: DriverMemory = "2g",
    log_format: LogFormatOption = LogFormat.TEXT,
    *,
    instance: InstanceOptions,
    metrics: MetricsOptions,
    place: Place,
) -> None:
    """Run the Spark job that decides into which queue each message of a service goes.

    It reads messages and the definitions of databases, services and routes, and writes decisions, which
    `queue-activation transport` carries out. A message that cannot go yet is held, and service-transmissions says why.
    Bodies of messages stay in Kafka. It prints `router ready` once the first batch is committed.

    Only one router may run on the topics of a prefix. It needs its checkpoint: without it, or with an older copy, the
    router refuses to start, because it would deliver messages a second time. Other options may be changed at each
    start. Ctrl-C or SIGTERM stops the router after the batch in progress; a second signal ends that wait.

    A DURATION is a number and a unit, such as 250ms, 5s, 2m, 1h or 7d.
    """
    from streaming.cli.routing.explaining import instance_of
    from streaming.daemons.router.router import RouterSettings, program

    logs.configure(log_format)
    addresses = instance.addresses(place)
    settings = RouterSettings(
        bootstrap_servers=place.bootstrap_servers,
        kafka_properties=place.properties(),
        checkpoint_location=checkpoint_location,
        topic_prefix=place.topic_prefix,
        instance=instance_of(addresses, instance.is_forwarding),
        semantics=semantics,
        keep_ms=keep.ms,
        trigger_interval_ms=trigger_interval.ms,
        metrics=metrics.address,
        driver_memory=driver_memory,
        takes_over=take_over,
        restore=restore,
    )
    launch(program(settings))


def register(app: typer.Typer) -> None:
    """Adds the command of this module."""
    app.command()(router)
