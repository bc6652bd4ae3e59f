"""The commands `queue-activation queue ...`: define a queue and its topic, and show all that is known of one."""

import json
import sys
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer
from confluent_kafka import KafkaError, KafkaException
from rich.console import Console

from streaming.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    Json,
    KafkaConfig,
    TopicPrefix,
    cluster,
    duration,
    option,
)
from streaming.core.times import FOREVER_MS
from streaming.errors import UserError
from streaming.kafka.clients import Cluster
from streaming.system.durations import Duration
from streaming.wire import input_records
from streaming.wire.decoding import InvalidRecordError
from streaming.wire.input_records import CommandRecord
from streaming.wire.topics import Topics

# Kafka has a command, or has not, within this time.
_SEND_TIMEOUT_S = 10.0

app = typer.Typer(help="Define a queue and its topic, and show all that is known of one.", no_args_is_help=True)


class OnOff(StrEnum):
    """As in ALTER QUEUE."""

    ON = "ON"
    OFF = "OFF"


class Activation(StrEnum):
    """As in ALTER QUEUE."""

    ON = "ON"
    OFF = "OFF"
    DROP = "DROP"


class Part(StrEnum):
    """What `create` creates."""

    BOTH = "both"
    TOPIC = "topic"
    DEFINITION = "definition"


QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]
Status = Annotated[
    OnOff | None, option("--status", "OFF: nothing can be received, nobody is told.", case_sensitive=False)
]
Procedure = Annotated[str | None, option("--procedure", "What a host runs: internal activation.")]
MaxQueueReaders = Annotated[
    int | None, option("--max-queue-readers", "So many tasks of the procedure run at most (1).", min=0, max=32_767)
]
ExecuteAs = Annotated[str | None, option("--execute-as", "Handed to the tasks; what it means is theirs.")]
PoisonMessageHandling = Annotated[
    OnOff | None,
    option("--poison-message-handling", "ON: five rollbacks in a row set the queue OFF.", case_sensitive=False),
]
ExternalActivationTimeout = Annotated[
    Duration | None,
    duration(
        "--external-activation-timeout",
        "How long a notified queue stays silent without a RECEIVE; `none`: for ever. By default as the monitor has it.",
        may_be_none=True,
    ),
]
Notification = Annotated[
    list[str] | None,
    option("--notification", "Event notification to create, NAME or NAME=SERVICE; may be given several times."),
]


@app.command()
def create(
    queue: QueueName,
    part: Annotated[Part, option("--only", "Create the Kafka topic of that name, the definition, or both.")] = (
        Part.BOTH
    ),
    partitions: Annotated[
        int, option("--partitions", "Of the topic: at most so many readers can receive at a time.", min=1)
    ] = 1,
    replication_factor: Annotated[int, option("--replication-factor", "Copies of each partition.", min=1)] = 1,
    status: Status = None,
    procedure: Procedure = None,
    max_queue_readers: MaxQueueReaders = None,
    execute_as: ExecuteAs = None,
    poison_message_handling: PoisonMessageHandling = None,
    external_activation_timeout: ExternalActivationTimeout = None,
    notification: Notification = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    topic_prefix: TopicPrefix = "",
    kafka_config: KafkaConfig = None,
) -> None:
    """Create a queue: its topic, and its definition. A topic that exists stays as it is; a definition is set anew.

    Without --procedure and --notification the queue has the event notification `default`.
    """
    from producers.queue_topics import create_queue_topics

    kafka, topics = cluster(bootstrap_servers, kafka_config), Topics(topic_prefix)
    if part is not Part.TOPIC:
        names = notification or ([] if procedure is not None else ["default"])
        fields = _fields(
            status, procedure, max_queue_readers, execute_as, None, poison_message_handling, external_activation_timeout
        )
        commands = _commands(queue, "CREATE_QUEUE", fields, names, [])
    if part is not Part.DEFINITION:
        created = create_queue_topics(
            bootstrap_servers,
            [queue],
            partitions=partitions,
            replication_factor=replication_factor,
            topic_prefix=topic_prefix,
            kafka_config=kafka.config,
        )
        typer.echo(f"topic {queue}: {'created' if created else 'exists, and stays as it is'}")
    if part is not Part.TOPIC:
        _send(kafka, topics, commands)
        typer.echo(f"queue {queue}: defined{_when(kafka, topics)}")


@app.command()
def alter(
    queue: QueueName,
    status: Status = None,
    activation: Annotated[
        Activation | None, option("--activation", "Internal activation; DROP forgets it.", case_sensitive=False)
    ] = None,
    procedure: Procedure = None,
    max_queue_readers: MaxQueueReaders = None,
    execute_as: ExecuteAs = None,
    poison_message_handling: PoisonMessageHandling = None,
    external_activation_timeout: ExternalActivationTimeout = None,
    notification: Notification = None,
    drop_notification: Annotated[
        list[str] | None, option("--drop-notification", "Event notification to drop; may be given several times.")
    ] = None,
    is_created: Annotated[bool, option("--create", "Create the queue if there is none.")] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    topic_prefix: TopicPrefix = "",
    kafka_config: KafkaConfig = None,
) -> None:
    """Change what the options name of a queue's definition, and nothing else."""
    kafka, topics = cluster(bootstrap_servers, kafka_config), Topics(topic_prefix)
    fields = _fields(
        status, procedure, max_queue_readers, execute_as, activation, poison_message_handling,
        external_activation_timeout,
    )  # fmt: skip
    commands = _commands(queue, "ALTER_QUEUE", fields, notification or [], drop_notification or [])
    if not commands:
        raise UserError("nothing is to be altered: name it by an option; `queue alter --help` lists them")
    if not is_created:
        _require(kafka, topics, queue)
    _send(kafka, topics, commands)
    typer.echo(f"queue {queue}: altered{_when(kafka, topics)}")


@app.command()
def drop(
    queue: QueueName,
    delete_topic: Annotated[
        bool, option("--delete-topic", "Delete the topic of that name too, with all its messages.")
    ] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    topic_prefix: TopicPrefix = "",
    kafka_config: KafkaConfig = None,
) -> None:
    """Drop a queue: the monitor forgets it, until the next arrival creates it with the defaults."""
    from producers.queue_topics import check_queue_names
    from streaming.kafka.admin import Admin

    kafka, topics = cluster(bootstrap_servers, kafka_config), Topics(topic_prefix)
    if delete_topic:
        check_queue_names([queue], topics)
    else:
        _require(kafka, topics, queue)
    _send(kafka, topics, _commands(queue, "DROP_QUEUE", {}, [], []))
    typer.echo(f"queue {queue}: dropped{_when(kafka, topics)}")
    if delete_topic:
        was_there = Admin(kafka).delete_topic(queue)
        typer.echo(f"topic {queue}: {'deleted' if was_there else 'there was none'}")


@app.command()
def show(
    queue: QueueName,
    as_json: Json = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    topic_prefix: TopicPrefix = "",
    kafka_config: KafkaConfig = None,
) -> None:
    """Show all that is known of a queue, and why its monitor is in its state."""
    from streaming.cli import queue_facts, queue_show

    facts = queue_facts.find(cluster(bootstrap_servers, kafka_config), Topics(topic_prefix), queue)
    if facts.definition is None and facts.row is None:
        raise _no_queue(queue)
    if as_json:
        typer.echo(json.dumps(queue_show.as_json(facts)))
    else:
        # Into a file or a pipe nothing is to be squeezed.
        Console(width=None if sys.stdout.isatty() else 120, highlight=False).print(queue_show.show(facts))


def _fields(
    status: OnOff | None,
    procedure: str | None,
    max_queue_readers: int | None,
    execute_as: str | None,
    activation: Activation | None,
    poison_message_handling: OnOff | None,
    timeout: Duration | None,
) -> dict[str, Any]:
    """The fields of CREATE_QUEUE and ALTER_QUEUE that the options name."""
    clause = {
        "status": activation.value if activation is not None else None,
        "procedure_name": procedure,
        "max_queue_readers": max_queue_readers,
        "execute_as": execute_as,
    }
    clause = {name: value for name, value in clause.items() if value is not None}
    fields: dict[str, Any] = {}
    if status is not None:
        fields["status"] = status.value
    if activation is Activation.DROP:
        fields["activation"] = "DROP"
    elif clause:
        fields["activation"] = clause
    if poison_message_handling is not None:
        fields["poison_message_handling"] = poison_message_handling.value
    if timeout is not None:
        fields["external_activation_timeout_ms"] = None if timeout.ms == FOREVER_MS else timeout.ms
    return fields


def _commands(
    queue: str, kind: str, fields: dict[str, Any], notifications: list[str], dropped: list[str]
) -> list[CommandRecord]:
    """The records to send, checked as the monitor does; CREATE_QUEUE and DROP_QUEUE even without fields.

    Raises:
        UserError: The monitor would refuse one.
    """
    found: list[dict[str, Any]] = [{"type": kind, **fields}] if fields or kind != "ALTER_QUEUE" else []
    for each in notifications:
        name, _, service = each.partition("=")
        found.append({"type": "CREATE_EVENT_NOTIFICATION", "notification": name, "service": service or None})
    found += [{"type": "DROP_EVENT_NOTIFICATION", "notification": name} for name in dropped]
    commands = []
    for fields_of_one in found:
        value = json.dumps({**fields_of_one, "queue": queue}).encode()
        try:
            commands.append(input_records.decode(input_records.commands_decoder, queue.encode(), value, len(value)))
        except InvalidRecordError as error:
            raise UserError(f"queue {queue!r}: {error}") from None
    return commands


def _send(kafka: Cluster, topics: Topics, commands: list[CommandRecord]) -> None:
    """Sends commands; returns when Kafka has them.

    Raises:
        UserError: Kafka cannot be reached, refuses them, or does not take them in time.
    """
    from streaming.kafka.access import denial, rights
    from streaming.kafka.admin import Admin

    Admin(kafka).require_topics(rights(writes=[topics.commands]))
    errors: list[KafkaError] = []
    producer = kafka.producer({"enable.idempotence": True})
    for command in commands:
        try:
            producer.produce(
                topics.commands,
                msgspec.json.encode(command),
                command.queue.encode(),
                on_delivery=lambda error, _message: errors.append(error) if error is not None else None,
            )
        except KafkaException as error:
            raise UserError(f"topic {topics.commands} does not take the command: {error}") from None
    unsent = producer.flush(_SEND_TIMEOUT_S)
    if errors:
        raise denial(errors[0]) or UserError(f"topic {topics.commands} did not take a command: {errors[0].str()}")
    if unsent:
        raise UserError(f"Kafka did not take the command within {_SEND_TIMEOUT_S:.0f} s; it may yet")


def _require(kafka: Cluster, topics: Topics, queue: str) -> None:
    """Checks that there is such a queue."""
    from streaming.cli import queue_facts

    if not queue_facts.is_known(kafka, topics, queue):
        raise _no_queue(queue)


def _no_queue(queue: str) -> UserError:
    return UserError(
        f"there is no queue {queue!r}: no command has created it, and the monitor knows no arrival. `queue-activation "
        f"queue create {queue}` creates it; `queue alter --create` does so too"
    )


def _when(kafka: Cluster, topics: Topics) -> str:
    """What to add about a monitor that does not run."""
    from streaming.daemons.monitor.sole_monitor import GROUP_ID
    from streaming.kafka.admin import Admin

    try:
        is_running = bool(Admin(kafka).members(topics.prefix + GROUP_ID, _SEND_TIMEOUT_S))
    except UserError:  # this user may not be allowed to see the group, and the command is sent
        return ""
    return "" if is_running else " (no monitor runs on these topics: it takes effect when one is started)"


def register(parent: typer.Typer) -> None:
    """Adds the commands of this module."""
    parent.add_typer(app, name="queue")
