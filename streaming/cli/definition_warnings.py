"""Warns of queue definitions that keep tasks from being started or from receiving."""

from collections.abc import Sequence
from contextlib import suppress

from streaming.cli import queue_facts
from streaming.cli.lines import say
from streaming.core.activation.definition import DefiningCommand, QueueDefinition
from streaming.core.activation.events import RefusedEventError
from streaming.core.numbers import plural
from streaming.kafka.clients import Cluster
from streaming.system import hints
from streaming.wire.input_records import CommandRecord
from streaming.wire.topics import Topics


def warn_of_readers_without_a_partition(
    kafka: Cluster, topics: Topics, queue: str, max_queue_readers: int | None, *, is_default: bool = False
) -> None:
    """Warns if more tasks are allowed than readers can receive at a time.

    Without a topic, the number of such readers is not known.

    Args:
        kafka: The cluster.
        topics: The topics.
        queue: The queue.
        max_queue_readers: The most tasks; None if that was not set.
        is_default: Whether the topic was created just now, and the user has not said with how many partitions.
    """
    if max_queue_readers is None:
        return
    if max_queue_readers == 0:
        say(f"warning: no task is ever started for queue {queue} with --max-queue-readers 0", err=True)
    partitions = queue_facts.partitions_of(kafka, topics, queue)
    if partitions is not None and partitions < max_queue_readers:
        few = f"of {max_queue_readers} readers no more than {partitions} can receive at a time"
        has = f"topic {queue} has {plural(partitions, 'partition')}, so {few}"
        if is_default:
            drop = hints.command("queue", "drop", queue, "--delete-topic")
            has = (
                f"--partitions was not given, so topic {queue} was created with {plural(partitions, 'partition')}, and "
                f"{few}. For another number, `{drop}` and create it again with --partitions {max_queue_readers}"
            )
        say(f"warning: {has}", err=True)


def warn_of_no_procedure(queue: str, before: QueueDefinition | None, commands: Sequence[CommandRecord]) -> None:
    """Warns if internal activation is ON after some commands, and no procedure is named that a host could run.

    Args:
        queue: The queue.
        before: The queue's definition before the commands; None: the queue had no definition.
        commands: The commands.
    """
    after = QueueDefinition.automatic(True) if before is None else before.copy()
    for event in (command.event() for command in commands):
        if isinstance(event, DefiningCommand):
            with suppress(RefusedEventError):
                after.apply(event)
    if after.is_activation_on and after.procedure_name is None:
        name = hints.command("queue", "alter", queue, "--procedure", "NAME")
        say(
            f"warning: the internal activation of queue {queue} names no procedure, so only an entry with the name `*` "
            f"in a host's file runs its tasks. Name one: `{name}`",
            err=True,
        )
