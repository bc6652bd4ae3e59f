"""The command `queue-activation router`, which turns its options into the router's settings."""

from streaming.cli.launch import launch
from streaming.cli.options import InstanceOptions, LogFormatOption, MetricsOptions, Place
from streaming.daemons.router.settings import RouterOptions, RouterSettings
from streaming.system import logs, stop_signals
from streaming.system.logs import LogFormat


@stop_signals.orderly("router")
def router(
    options: RouterOptions,
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
    from streaming.cli.routing.explained_routes import instance_of
    from streaming.daemons.router.router import program

    logs.configure(log_format)
    this = instance_of(instance.addresses(place), instance.is_forwarding)
    servers, properties = place.bootstrap_servers, place.properties()
    launch(program(RouterSettings(servers, properties, place.topic_prefix, metrics.address, options, this)))
