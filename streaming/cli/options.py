"""Options that several commands of the command line share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from streaming.cli.lines import say
from streaming.kafka import client_properties
from streaming.kafka.clients import Cluster
from streaming.system import durations
from streaming.system.durations import Duration
from streaming.system.logs import LogFormat


def option(name: str, help_text: str, **more: Any) -> Any:
    """Returns an option `--name` that the environment variable QUEUE_ACTIVATION_NAME can also set."""
    variable = "QUEUE_ACTIVATION_" + name.removeprefix("--").split("/", maxsplit=1)[0].replace("-", "_").upper()
    return typer.Option(name, help=help_text, envvar=variable, show_envvar=False, **more)


def duration(name: str, help_text: str, *, may_be_none: bool = False) -> Any:
    """Returns an option that takes a duration."""
    parser = durations.parse_or_none if may_be_none else durations.parse
    return option(name, help_text, parser=parser, metavar="DURATION")


def part_of_definition(name: str, help_text: str, **more: Any) -> Any:
    """Returns an option about one definition. It has no environment variable, which would apply to every one."""
    return typer.Option(name, help=help_text, **more)


class OnOff(StrEnum):
    """ON or OFF, as in Service Broker's statements."""

    ON = "ON"
    OFF = "OFF"


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
CheckpointLocation = Annotated[
    str, option("--checkpoint-location", "Folder or URI for progress and state. The next start continues there.")
]
TriggerInterval = Annotated[
    Duration, duration("--trigger-interval", "Shortest time from the start of a batch to the next.")
]
TakeOver = Annotated[
    bool,
    option(
        "--take-over",
        "End the one that runs on the same checkpoint, and take its place. Without this option, only one that has "
        "ended or was silent for 13 s loses its place.",
    ),
]
DriverMemory = Annotated[
    str,
    option(
        "--driver-memory", "Heap of Spark's JVM, such as 512m or 4g. Ignored under spark-submit, which has its own."
    ),
]
MetricsPort = Annotated[
    int | None,
    option(
        "--metrics-port", "Port for /metrics, /healthz and /readyz. Without it they are not served.", min=1, max=65535
    ),
]
MetricsHost = Annotated[
    str, option("--metrics-host", "Address for --metrics-port; 0.0.0.0 opens it to other machines.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line, for programs.")]


def kafka_properties(config: Path | None) -> dict[str, str]:
    """Returns the properties in the file of --kafka-config, by Java's names; warns if others can read its secrets."""
    properties = client_properties.load(config)
    warning = client_properties.exposure(config, properties) if config is not None else None
    if warning is not None:
        say(f"warning: {warning}", err=True)
    return properties


def cluster(bootstrap_servers: str, config: Path | None) -> Cluster:
    """Returns the cluster that the options name."""
    return Cluster(bootstrap_servers, client_properties.for_librdkafka(kafka_properties(config)))
