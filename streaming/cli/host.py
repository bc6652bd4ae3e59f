"""The command `queue-activation host`: runs the tasks of internal activation."""

from pathlib import Path
from typing import Annotated

import typer

from streaming.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    KafkaConfig,
    LogFormatOption,
    TopicPrefix,
    cluster,
    option,
)
from streaming.system import stop_signals
from streaming.system.logs import LogFormat


@stop_signals.orderly()
def host(
    config: Annotated[
        Path, option("--config", "TOML file that says which procedure is run by what command or function.")
    ],
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    group_id: Annotated[
        str,
        option("--group-id", "Consumer group of the hosts that share the work. Default: PREFIXqueue-activation-host."),
    ] = "",
    topic_prefix: TopicPrefix = "",
    log_format: LogFormatOption = LogFormat.TEXT,
    kafka_config: KafkaConfig = None,
) -> None:
    """Run the procedures that internal activation starts, until Ctrl-C or SIGTERM.

    Prints `host ready`. When it is stopped, running tasks have the configured time to end by themselves; a second
    signal ends the waiting.
    """
    from streaming.daemons.host import service
    from streaming.daemons.host.task_host import HostSettings

    kafka = cluster(bootstrap_servers, kafka_config)
    service.run(HostSettings(kafka, config, topic_prefix, group_id, kafka_config), log_format)


def register(app: typer.Typer) -> None:
    """Adds the command of this module."""
    app.command()(host)
