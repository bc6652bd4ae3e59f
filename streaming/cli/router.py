"""The command `queue-activation router`, which turns its options into the router's settings."""

from typing import Annotated

import typer

from streaming.cli.launching import launch
from streaming.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    CheckpointLocation,
    DriverMemory,
    KafkaConfig,
    LogFormatOption,
    MetricsHost,
    MetricsPort,
    OnOff,
    TakeOver,
    TopicPrefix,
    TriggerInterval,
    duration,
    kafka_properties,
    option,
)
from streaming.cli.routing.routes import Forwarding, InstanceAddress
from streaming.core.activation.settings import Semantics
from streaming.kafka.bootstrap_servers import own_addresses
from streaming.system import durations, logs, stop_signals
from streaming.system.durations import Duration
from streaming.system.logs import LogFormat


@stop_signals.orderly("router")
def router(
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
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
    topic_prefix: TopicPrefix = "",
    instance_address: InstanceAddress = None,
    message_forwarding: Forwarding = OnOff.OFF,
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
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    log_format: LogFormatOption = LogFormat.TEXT,
    kafka_config: KafkaConfig = None,
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
    addresses = instance_address or own_addresses(bootstrap_servers, topic_prefix)
    settings = RouterSettings(
        bootstrap_servers=bootstrap_servers,
        kafka_properties=kafka_properties(kafka_config),
        checkpoint_location=checkpoint_location,
        topic_prefix=topic_prefix,
        instance=instance_of(addresses, message_forwarding is OnOff.ON),
        semantics=semantics,
        keep_ms=keep.ms,
        trigger_interval_ms=trigger_interval.ms,
        metrics=None if metrics_port is None else (metrics_host, metrics_port),
        driver_memory=driver_memory,
        takes_over=take_over,
        restore=restore,
    )
    launch(program(settings))


def register(app: typer.Typer) -> None:
    """Adds the command of this module."""
    app.command()(router)
