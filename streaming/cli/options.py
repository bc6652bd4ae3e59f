"""Options that several commands of the command line share."""

from pathlib import Path
from typing import Annotated, Any

import typer

from streaming.kafka import client_properties
from streaming.kafka.clients import Cluster
from streaming.system import durations
from streaming.system.logs import LogFormat


def option(name: str, help_text: str, **more: Any) -> Any:
    """Returns an option `--name` that the environment variable QUEUE_ACTIVATION_NAME can also set."""
    variable = "QUEUE_ACTIVATION_" + name.removeprefix("--").split("/", maxsplit=1)[0].replace("-", "_").upper()
    return typer.Option(name, help=help_text, envvar=variable, show_envvar=False, **more)


def duration(name: str, help_text: str, *, may_be_none: bool = False) -> Any:
    """Returns an option that takes a duration."""
    parser = durations.parse_or_none if may_be_none else durations.parse
    return option(name, help_text, parser=parser, metavar="DURATION")


DEFAULT_BOOTSTRAP_SERVERS = "localhost:9092"

BootstrapServers = Annotated[str, option("--bootstrap-servers", "Kafka's bootstrap servers, HOST:PORT[,HOST:PORT].")]
TopicPrefix = Annotated[str, option("--topic-prefix", "Beginning of the names of the monitor's topics.")]
KafkaConfig = Annotated[
    Path | None,
    option(
        "--kafka-config",
        "Java properties file with further settings for all Kafka clients, such as users and TLS.",
        dir_okay=False,
    ),
]
LogFormatOption = Annotated[
    LogFormat, option("--log-format", "Format of the log on stderr: lines of text, or one JSON object per line.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line, for programs.")]


def kafka_properties(config: Path | None) -> dict[str, str]:
    """Returns the properties in the file of --kafka-config, by Java's names; warns if others can read its secrets."""
    properties = client_properties.load(config)
    warning = client_properties.exposure(config, properties) if config is not None else None
    if warning is not None:
        typer.echo(f"warning: {warning}", err=True)
    return properties


def cluster(bootstrap_servers: str, config: Path | None) -> Cluster:
    """Returns the cluster that the options name."""
    return Cluster(bootstrap_servers, client_properties.for_librdkafka(kafka_properties(config)))
