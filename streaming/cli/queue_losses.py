"""Warns of messages that no reader reads: of queues that are dropped or created, and of messages just sent."""

from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from streaming.cli import activators, monitor_rows, queue_facts, tables
from streaming.cli.lines import say
from streaming.cli.options import confirm
from streaming.cli.routing.queue_services import leading_to
from streaming.core.numbers import plural
from streaming.errors import UserError
from streaming.kafka.admin import ADMIN_TIMEOUT_S
from streaming.kafka.clients import Cluster
from streaming.kafka.own_programs import absence, is_ready
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system import hints
from streaming.wire.topics import Topics

# The most records that are counted, because a topic may have millions.
_MOST_COUNTED = 1_000
# What is known of a queue that no command defines, before the monitor has read its first record.
_NEW = {"state": "INACTIVE", "tasks_waiting": 0, "max_queue_readers": None}


def ask(kafka: Cluster, topics: Topics, queue: str, *, with_topic: bool, yes: bool) -> None:
    """Names the services of a queue to be dropped. Asks for a confirmation if messages are, or may be, unread.

    Args:
        kafka: The cluster.
        topics: The topics.
        queue: The queue.
        with_topic: Whether its topic is deleted too.
        yes: Whether the user has answered already.

    Raises:
        UserError: There is no terminal to ask on; Kafka cannot be reached or denies access.
    """
    then = "wait until it has a topic again" if with_topic else "create the queue again, with the defaults"
    for service in leading_to(kafka, topics, queue):
        drop = hints.command("service", "drop", service.name, "--database", service.database)
        say(
            f"warning: service {service.name} of database {service.database} leads to queue {queue}: its next "
            f"messages {then}. `{drop}` drops it",
            err=True,
        )
    row = queue_facts.row_of(kafka, topics, queue)
    if yes or (row is not None and monitor_rows.observed(row) is not None):  # an observer finds what is unread again
        return
    unread = ""
    if row is not None and (row["unread_messages"] > 0 or row.get("is_count_uncertain")):
        unread = monitor_rows.unread_messages(row)
    elif not _is_up_to_date(kafka, topics) and (count := _unread(kafka, topics, queue)):
        unread = _not_read(queue, count)
    if unread:
        stay = "What is unread stays in its topic, and no reader is started for it before another message arrives."
        confirm(f"Delete topic {queue} with {unread}?" if with_topic else f"Drop queue {queue} with {unread}? {stay}")


def warn_of_uncounted(kafka: Cluster, topics: Topics, queue: str) -> None:
    """Warns of messages that are in the topic of a new queue already. Says nothing if this user may not look."""
    with suppress(UserError):  # a user who defines a queue needs no right to look
        row = queue_facts.row_of(kafka, topics, queue)
        unread = _unread(kafka, topics, queue)
        if unread <= (0 if row is None else row["unread_messages"]):
            return
        then = "The monitor counts only what arrives from now on: no reader is started for them"
        if not _is_up_to_date(kafka, topics):
            then = "The next monitor counts only those whose reports it finds: no reader is started for the others"
        say(f"warning: topic {queue} holds {_not_read(queue, unread)}. {then} before another message arrives", err=True)


def _is_up_to_date(kafka: Cluster, topics: Topics) -> bool:
    """Returns whether a monitor is ready, so that its rows count all messages, or whether this is not known."""
    try:
        return is_ready(kafka, topics, "monitor")
    except UserError:
        return True


def _not_read(queue: str, unread: int) -> str:
    count = f"more than {_MOST_COUNTED:,} messages" if unread > _MOST_COUNTED else plural(unread, "message")
    return f"{count} that the consumer group {queue} has not read"


def _unread(kafka: Cluster, topics: Topics, queue: str) -> int:
    """Returns the number of records that readers of the queue would find, at most _MOST_COUNTED + 1.

    Returns 0 if this user may not look.
    """
    with suppress(UserError, KafkaException):
        if partitions := queue_facts.partitions_of(kafka, topics, queue):
            return _uncommitted(kafka, queue, partitions)
    return 0


def _uncommitted(kafka: Cluster, queue: str, partitions: int) -> int:
    consumer = kafka.consumer({"group.id": queue})
    try:
        places = consumer.committed([TopicPartition(queue, number) for number in range(partitions)], ADMIN_TIMEOUT_S)
    finally:
        consumer.close()
    offsets = {place.partition: max(0, place.offset) for place in places}
    with TopicFollower(kafka, [queue], Start.BEGINNING, offsets=offsets) as follower:
        return sum(1 for _ in islice(follower.to_end(), _MOST_COUNTED + 1))


def warn_of_nobody(kafka: Cluster, topics: Topics, queues: Collection[str]) -> None:
    """Warns of missing programs, without which no reader reads the messages that were sent to queues.

    A sender needs no right to look for programs. Says nothing about programs that this user may not see.
    """
    with suppress(UserError):
        for sentence in _missing(kafka, topics, queues):
            say(f"warning: {sentence}", err=True)


def _missing(kafka: Cluster, topics: Topics, queues: Collection[str]) -> Iterator[str]:
    """Yields the sentences about missing programs, and about queues that are OFF. Says of others what `queues` says.

    Without a monitor, nothing else matters. A queue that readers read lacks nobody.
    """
    if (sentence := absence(kafka, topics, "monitor")) is not None:
        yield sentence
        return
    known = {row["queue"]: row for row in tables.read_monitors(kafka, topics)} if queues else {}
    new = _new_rows(kafka, topics, {*queues} - known.keys())
    rows = [known.get(queue, _NEW | {"queue": queue} | new.get(queue, {})) for queue in queues]
    if off := [row["queue"] for row in rows if row["state"] is None and not row["is_receive_enabled"]]:
        switch_on = hints.command("queue", "alter", off[0] if len(off) == 1 else "QUEUE", "--status", "ON")
        yield f"{monitor_rows.queue_names(off)}: OFF, so no reader is started. `{switch_on}` sets it ON"
    idle = [row for row in rows if row["state"] in {"INACTIVE", "NOTIFIED"} and not row["tasks_waiting"]]
    if any(map(monitor_rows.needs_host, idle)) and (sentence := absence(kafka, topics, "host")) is not None:
        yield sentence
    waiting = [row | {"state": "NOTIFIED"} for row in idle]  # as soon as the monitor has read the reports
    told = activators.read(kafka, topics) if waiting else {}
    of_queues = {row["queue"]: told[row["queue"]] for row in waiting if row["queue"] in told}
    yield from activators.problems(kafka, topics, waiting, of_queues)
    for row in waiting:
        if activators.has_nobody(row, told):
            yield from activators.without_entry(told, row["queue"])


def _new_rows(kafka: Cluster, topics: Topics, queues: Collection[str]) -> dict[str, dict[str, Any]]:
    """Returns queue -> the fields of its row that its commands decide, of queues of which the monitor wrote no row yet.

    Leaves out queues that no command defines. Returns an empty result if this user may not read the commands.
    """
    found: dict[str, dict[str, Any]] = {}
    with suppress(UserError):
        for queue, definition in (queue_facts.definitions_of(kafka, topics, queues) if queues else {}).items():
            clause = definition.activation
            found[queue] = {
                "state": "INACTIVE" if definition.is_monitored else None,
                "max_queue_readers": None if clause is None else clause.max_queue_readers,
                "is_activation_enabled": definition.is_activation_on,
                "is_receive_enabled": definition.is_on,
            }
    return found
