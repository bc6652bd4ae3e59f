"""Options that several commands of the command line share."""

import os
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from streaming.cli.lines import say
from streaming.errors import UserError
from streaming.kafka import client_properties
from streaming.kafka.bootstrap_servers import own_addresses
from streaming.kafka.clients import Cluster
from streaming.system import hints
from streaming.system.logs import LogFormat
from streaming.system.options import option
from streaming.system.wrapped_text import fitted
from streaming.wire.topics import Topics, check_prefix


def place(name: str, help_text: str, **more: Any) -> Any:
    """Returns an option that says where Kafka is. Command lines in sentences repeat such options."""
    return option(name, help_text, callback=_note, **more)


def _note(context: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:
    """Notes the value of an option for hints, except a default and a value from the file of --config."""
    source = context.get_parameter_source(str(parameter.name))
    is_own = source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")
    overrides = source is not None and source.name == "COMMANDLINE" and str(parameter.envvar) in os.environ
    differs = value != parameter.get_default(context)
    text = None if value is None else str(value.absolute() if isinstance(value, Path) else value)
    hints.note(parameter.opts[0], text, is_needed=is_own and (differs or overrides))
    return value


def part_of_definition(name: str, help_text: str, **more: Any) -> Any:
    """Returns an option of a definition. It has no environment variable: a variable would apply to all definitions."""
    return typer.Option(name, help=help_text, **more)


class OnOff(StrEnum):
    """ON or OFF, as in Service Broker's statements."""

    ON = "ON"
    OFF = "OFF"


def choice(of: type[StrEnum]) -> dict[str, Any]:
    """Returns arguments for an option with these values. The option takes them in upper and lower case."""
    return {"case_sensitive": False, "metavar": f"<{'|'.join(of)}>"}


@dataclass(frozen=True)
class Kafka:
    """The options that say where Kafka is."""

    bootstrap_servers: Annotated[
        str, place("--bootstrap-servers", "Kafka's bootstrap servers, HOST:PORT[,HOST:PORT].")
    ] = "localhost:9092"
    kafka_config: Annotated[
        Path | None,
        place(
            "--kafka-config",
            "Java properties file with further settings for all Kafka clients, such as users and TLS.",
            dir_okay=False,
        ),
    ] = None

    def cluster(self) -> Cluster:
        """Returns the cluster; warns if other users can read the file's secrets."""
        return Cluster(self.bootstrap_servers, client_properties.for_librdkafka(self.properties()))

    def properties(self) -> dict[str, str]:
        """Returns the properties in the file, by Java's names; warns if other users can read its secrets."""
        properties = client_properties.load(self.kafka_config)
        if self.kafka_config is not None:
            warning = client_properties.exposure(self.kafka_config, properties)
            if warning is not None:
                say(f"warning: {warning}", err=True)
        return properties


@dataclass(frozen=True)
class Place(Kafka):
    """The options that say where Kafka is, and which topics to use."""

    topic_prefix: Annotated[str, place("--topic-prefix", "Beginning of the names of the monitor's topics.")] = ""

    def __post_init__(self) -> None:
        """Checks the prefix; raises UserError."""
        check_prefix(self.topic_prefix)

    def topics(self) -> Topics:
        """Returns the topics with the prefix."""
        return Topics(self.topic_prefix)


@dataclass(frozen=True)
class InstanceOptions:
    """The options that say how messages of other instances reach this instance."""

    instance_address: Annotated[
        list[str] | None,
        option(
            "--instance-address",
            "Address of this instance, tcp://HOST:PORT[/PREFIX]. Repeatable; by default, the bootstrap servers.",
            metavar="<address>",
        ),
    ] = None
    message_forwarding: Annotated[
        OnOff,
        option("--message-forwarding", "ON: messages from outside are sent on to other instances.", **choice(OnOff)),
    ] = OnOff.OFF

    def addresses(self, place: Place) -> list[str]:
        """Returns the addresses of this instance."""
        return self.instance_address or own_addresses(place.bootstrap_servers, place.topic_prefix)

    @property
    def is_forwarding(self) -> bool:
        """Returns whether messages from outside are sent on."""
        return self.message_forwarding is OnOff.ON


@dataclass(frozen=True)
class MetricsOptions:
    """The options that say where metrics are served."""

    metrics_port: Annotated[
        int | None,
        option(
            "--metrics-port",
            "Port for /metrics, /healthz and /readyz. Without it they are not served.",
            min=1,
            max=65535,
        ),
    ] = None
    metrics_host: Annotated[
        str, option("--metrics-host", "Address for --metrics-port; 0.0.0.0 opens it to other machines.")
    ] = "127.0.0.1"

    @property
    def address(self) -> tuple[str, int] | None:
        """Returns the host and the port; None: metrics are not served."""
        return None if self.metrics_port is None else (self.metrics_host, self.metrics_port)


LogFormatOption = Annotated[
    LogFormat, option("--log-format", "Format of the log on stderr: lines of text, or one JSON object per line.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line, for programs.")]


def is_given(context: typer.Context, parameter: str) -> bool:
    """Returns whether the command line or the environment gives a parameter."""
    source = context.get_parameter_source(parameter)
    return source is not None and source.name != "DEFAULT"


def confirm(question: str) -> None:
    """Asks for a confirmation, unless the user has given --yes. Ends the command if the user does not confirm.

    Raises:
        UserError: There is no terminal to ask on.
    """
    if not sys.stdin.isatty():
        raise UserError(f"{question} Add --yes: there is no terminal to ask on.")
    typer.confirm(fitted(f"{question} [y/N]:", sys.stdout), abort=True, show_default=False, prompt_suffix=" ")
