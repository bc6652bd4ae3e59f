"""The commands `queue-activation queue ...`: create, alter, drop or show a queue."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from streaming.cli import tables
from streaming.cli.command_sender import send_commands
from streaming.cli.lines import say
from streaming.cli.options import Json, OnOff, Place, choice, is_given, part_of_definition
from streaming.cli.presence import say_if_starting, warn_of_absence
from streaming.core.times import FOREVER_MS
from streaming.errors import UserError
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.own_programs import how_to_start, is_ready, with_advice
from streaming.system import durations, hints
from streaming.system.durations import Duration
from streaming.system.options import option
from streaming.wire import input_records
from streaming.wire.input_records import CommandRecord
from streaming.wire.record_decoders import InvalidRecordError, by_field
from streaming.wire.topics import Topics

if TYPE_CHECKING:
    from streaming.core.activation.definition import QueueDefinition

app = typer.Typer(help="Create, alter, drop or show a queue.", no_args_is_help=True)


class Activation(StrEnum):
    """The values of ACTIVATION in ALTER QUEUE."""

    ON = "ON"
    OFF = "OFF"
    DROP = "DROP"


class Part(StrEnum):
    """The part of a queue that `create` creates."""

    BOTH = "both"
    TOPIC = "topic"
    DEFINITION = "definition"


QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]


@dataclass(frozen=True)
class DefinitionOptions:
    """The options for the parts of a queue's definition that are created and altered alike."""

    status: Annotated[
        OnOff | None,
        part_of_definition(
            "--status",
            "OFF: no notification is written, and no task is started. Running readers continue.",
            **choice(OnOff),
        ),
    ] = None
    procedure: Annotated[
        str | None,
        part_of_definition(
            "--procedure",
            "Use internal activation: tasks of this procedure, a name in the file of `queue-activation host`, read the "
            "queue.",
        ),
    ] = None
    max_queue_readers: Annotated[
        int | None,
        part_of_definition(
            "--max-queue-readers", "Most tasks of the procedure at a time (1 if never set).", min=0, max=32_767
        ),
    ] = None
    execute_as: Annotated[
        str | None,
        part_of_definition("--execute-as", "Passed to the tasks as QUEUE_ACTIVATION_EXECUTE_AS; has no other effect."),
    ] = None
    poison_message_handling: Annotated[
        OnOff | None,
        part_of_definition(
            "--poison-message-handling",
            "ON: five rollbacks in a row set the queue OFF (ON if never set).",
            **choice(OnOff),
        ),
    ] = None
    external_activation_timeout: Annotated[
        Duration | None,
        part_of_definition(
            "--external-activation-timeout",
            "Request another reader this long (30s, 2m) after the last if no RECEIVE has come and messages are unread; "
            "`none`: never. If never set, the monitor's option applies.",
            parser=durations.parse_or_none,
            metavar="<duration>",
        ),
    ] = None
    notification: Annotated[
        list[str] | None,
        part_of_definition(
            "--notification",
            "Event notification to create, NAME or NAME=SERVICE: each activation writes a record for it. Repeatable.",
            metavar="<notification>",
        ),
    ] = None

    def fields(self, activation: Activation | None = None) -> dict[str, Any]:
        """Returns the fields of CREATE_QUEUE or ALTER_QUEUE that the options set."""
        clause = {
            "status": activation.value if activation is not None else None,
            "procedure_name": self.procedure,
            "max_queue_readers": self.max_queue_readers,
            "execute_as": self.execute_as,
        }
        clause = {name: value for name, value in clause.items() if value is not None}
        fields: dict[str, Any] = {}
        if self.status is not None:
            fields["status"] = self.status.value
        if activation is Activation.DROP:
            if len(clause) > 1:
                raise UserError(
                    "--activation DROP removes the procedure and its options. Do not give any of them with it."
                )
            fields["activation"] = "DROP"
        elif clause:
            fields["activation"] = clause
        if self.poison_message_handling is not None:
            fields["poison_message_handling"] = self.poison_message_handling.value
        if (timeout := self.external_activation_timeout) is not None:
            fields["external_activation_timeout_ms"] = None if timeout.ms == FOREVER_MS else timeout.ms
        return fields


@app.command()
def create(
    context: typer.Context,
    queue: QueueName,
    part: Annotated[
        Part, part_of_definition("--only", "Create the Kafka topic of that name, or the definition, or both.")
    ] = (Part.BOTH),
    partitions: Annotated[
        int, option("--partitions", "Partitions of the topic: the most readers that can receive at a time.", min=1)
    ] = 1,
    replication_factor: Annotated[int, option("--replication-factor", "Copies of each partition.", min=1)] = 1,
    *,
    definition: DefinitionOptions,
    place: Place,
) -> None:
    """Create a queue: its Kafka topic and its definition.

    A topic that exists is left unchanged. A definition that exists is replaced.
    Without --procedure and --notification the queue gets the event notification `default`; with --procedure alone it
    gets none, and its tasks need a `queue-activation host` to run them.
    """
    from producers.queue_topics import create_queue_topics
    from streaming.cli import definition_warnings, queue_facts, queue_losses

    kafka, topics = place.cluster(), place.topics()
    fields = definition.fields()
    if part is Part.TOPIC and (fields or definition.notification):
        raise UserError("--only topic creates no definition. Remove the options that define the queue.")
    if part is not Part.TOPIC:
        names = definition.notification or ([] if definition.procedure is not None else ["default"])
        before = queue_facts.definition_of(kafka, topics, queue)
        kept = {name.partition("=")[0] for name in names}
        dropped = [] if before is None else [name for name in before.notifications if name not in kept]
        commands = _commands(queue, "CREATE_QUEUE", fields, names, dropped)
    created: list[str] = []
    is_default, is_default_factor = (not is_given(context, name) for name in ("partitions", "replication_factor"))
    if part is not Part.DEFINITION:
        created = create_queue_topics(
            place.bootstrap_servers,
            [queue],
            partitions=partitions,
            replication_factor=replication_factor,
            topic_prefix=place.topic_prefix,
            kafka_config=kafka.config,
            is_compared=not is_default,
            is_factor_compared=not is_default_factor,
        )
        say(f"topic {queue}: {'created' if created else 'exists, and is left unchanged'}")
    if part is not Part.TOPIC:
        _send(kafka, topics, commands)
        say(f"queue {queue}: defined{_when(kafka, topics)}")
        if before is None:
            queue_losses.warn_of_uncounted(kafka, topics, queue)
        definition_warnings.warn_of_no_procedure(queue, before, commands)
        definition_warnings.warn_of_readers_without_a_partition(
            kafka, topics, queue, definition.max_queue_readers, is_default=is_default and bool(created)
        )


@app.command()
def alter(
    queue: QueueName,
    activation: Annotated[
        Activation | None,
        part_of_definition("--activation", "Internal activation ON or OFF; DROP removes it.", **choice(Activation)),
    ] = None,
    drop_notification: Annotated[
        list[str] | None,
        part_of_definition("--drop-notification", "Event notification to drop. Repeatable.", metavar="<notification>"),
    ] = None,
    is_created: Annotated[bool, part_of_definition("--create", "Create the queue if it does not exist.")] = False,
    *,
    definition: DefinitionOptions,
    place: Place,
) -> None:
    """Change those parts of a queue's definition that the options name."""
    from streaming.cli import definition_warnings, queue_facts

    kafka, topics = place.cluster(), place.topics()
    fields = definition.fields(activation)
    commands = _commands(queue, "ALTER_QUEUE", fields, definition.notification or [], drop_notification or [])
    if not commands:
        raise UserError(
            f"Nothing to alter: give at least one option. `{hints.plain('queue', 'alter', '--help')}` lists them."
        )
    if not is_created:
        _require(kafka, topics, queue)
    before = queue_facts.definition_of(kafka, topics, queue) if "activation" in fields else None
    if "activation" in fields and definition.procedure is None and activation is None:
        _require_activation(queue, before)
    _send(kafka, topics, commands)
    say(f"queue {queue}: altered{_when(kafka, topics)}")
    if "activation" in fields:
        definition_warnings.warn_of_no_procedure(queue, before, commands)
    definition_warnings.warn_of_readers_without_a_partition(kafka, topics, queue, definition.max_queue_readers)


@app.command()
def drop(
    queue: QueueName,
    delete_topic: Annotated[
        bool, part_of_definition("--delete-topic", "Also delete the topic of that name, with all its messages.")
    ] = False,
    yes: Annotated[bool, part_of_definition("--yes", "Do not ask, even if messages are unread.")] = False,
    *,
    place: Place,
) -> None:
    """Drop a queue: the monitor deletes its state. The next arrival creates the queue with the defaults.

    Names the services whose messages go into it, and asks first if messages are unread.
    """
    from producers.queue_topics import check_queue_names
    from streaming.cli import queue_losses

    kafka, topics = place.cluster(), place.topics()
    _require(kafka, topics, queue)  # so that a mistyped name does not delete another topic
    if delete_topic:
        check_queue_names([queue], topics)
    queue_losses.ask(kafka, topics, queue, with_topic=delete_topic, yes=yes)
    _send(kafka, topics, _commands(queue, "DROP_QUEUE", {}, [], []))
    say(f"queue {queue}: dropped{_when(kafka, topics)}")
    if delete_topic:
        was_there = Admin(kafka).delete_topic(queue)
        say(f"topic {queue}: {'deleted' if was_there else 'did not exist'}")


@app.command()
def show(queue: QueueName, as_json: Json = False, *, place: Place) -> None:
    """Show all that is known about a queue, and why its monitor is in its state.

    If no monitor runs, the state is the one that the last monitor wrote, and the standard error says so.
    """
    from streaming.cli import group_facts, queue_facts, queue_show

    kafka, topics = place.cluster(), place.topics()
    facts = queue_facts.find(kafka, topics, queue)
    if not facts.is_known:
        if warn_of_absence(kafka, topics, "monitor") is not False:
            say_if_starting(kafka, topics)
        raise queue_facts.no_queue(kafka, topics, queue)
    if facts.group is not None:
        facts.group = group_facts.with_backlog(kafka, facts.group)
    queue_facts.look_around(kafka, topics, facts, as_json=as_json)
    if as_json:
        typer.echo(json.dumps(queue_show.as_json(facts)))
    else:
        tables.print_view(queue_show.show(facts))


def _commands(
    queue: str, kind: str, fields: dict[str, Any], notifications: list[str], dropped: list[str]
) -> list[CommandRecord]:
    """Returns the records to send, checked as by the monitor. Leaves out ALTER_QUEUE if it has no fields.

    Raises:
        UserError: The monitor would refuse one of the records.
    """
    found: list[dict[str, Any]] = [{"type": kind, **fields}] if fields or kind != "ALTER_QUEUE" else []
    for each in notifications:
        if each.lower() == "none":  # as --external-activation-timeout has it; a record would create this notification
            alter = hints.command("queue", "alter", queue, "--drop-notification", "NAME")
            raise UserError(f"--notification {each} would create a notification with this name. To drop one: `{alter}`")
        name, _, service = each.partition("=")
        found.append({"type": "CREATE_EVENT_NOTIFICATION", "notification": name, "service": service or None})
    found += [{"type": "DROP_EVENT_NOTIFICATION", "notification": name} for name in dropped]
    commands = []
    for fields_of_one in found:
        value = json.dumps({**fields_of_one, "queue": queue}).encode()
        try:
            commands.append(input_records.decode(input_records.commands_decoder, queue.encode(), value, len(value)))
        except InvalidRecordError as error:
            raise UserError(f"queue {queue!r}: {by_field(error)}") from None
    return commands


def _send(kafka: Cluster, topics: Topics, commands: list[CommandRecord]) -> None:
    """Sends commands, and returns when Kafka has confirmed them; raises UserError."""
    records = [(command.queue, msgspec.json.encode(command)) for command in commands]
    send_commands(kafka, topics.commands, records, hints.command("queue", "show", commands[0].queue))


def _require(kafka: Cluster, topics: Topics, queue: str) -> None:
    """Raises UserError if the queue does not exist."""
    from streaming.cli import queue_facts

    if not queue_facts.is_known(kafka, topics, queue):
        raise queue_facts.no_queue(kafka, topics, queue)


def _require_activation(queue: str, definition: "QueueDefinition | None") -> None:
    """Raises UserError if the queue has no internal activation. A single option of the clause would switch it on."""
    if definition is None or definition.activation is None:
        raise UserError(
            f"Queue {queue!r} has no internal activation. --max-queue-readers and --execute-as would switch it on, "
            "without a procedure. Give --procedure NAME, or --activation ON or OFF, too."
        )


def _when(kafka: Cluster, topics: Topics) -> str:
    """Returns a remark if no monitor is running; otherwise an empty text."""
    try:
        is_taken = is_ready(kafka, topics, "monitor")
    except UserError:  # this user may not be allowed to see the group; the command was sent all the same
        return ""
    if is_taken:
        return ""
    waits = " (no monitor is running; this takes effect once one does)"
    return with_advice(waits, how_to_start(kafka, topics, "monitor"))
