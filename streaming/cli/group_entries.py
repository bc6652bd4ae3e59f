"""Finds faults of entries for consumer groups: entries that were removed, and topics that do not exist."""

import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from confluent_kafka.admin import AclOperation

from streaming.cli import activators
from streaming.cli.activators import Told
from streaming.cli.monitor_rows import observed, queue_names, without_entry
from streaming.daemons.activator.config import Config
from streaming.errors import UserError
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.wire.activator_rows import ActivatorRow
from streaming.wire.topics import Topics, topic_name_problem

# The most missing topics that a view names.
_MOST = 10


@dataclass(frozen=True, order=True)
class MissingTopic:
    """A topic that an entry names and that does not exist.

    Attributes:
        topic: The topic.
        group: The consumer group of the entry.
        file: The file with the entry.
        queue: The queue that stands for the group.
    """

    topic: str
    group: str
    file: str
    queue: str

    @property
    def problem(self) -> str:
        """Returns the sentence about the topic, with advice."""
        return (
            f"topic {self.topic}, which `topics` of its entry in {self.file} names, does not exist, so nobody sees its "
            "messages. Create the topic, or mend the entry. If Kafka creates topics by itself, a message is enough"
        )


def removed(view: Iterable[dict[str, Any]], told: Mapping[str, Sequence[Told]]) -> dict[str, dict[str, Any]]:
    """Returns queue -> row of the consumer groups that no entry names any more and no observer reports.

    An activator must have written a row that says that it has no entry for the group's queue. An activator without such
    a row may have an entry with a pattern that the queue matches.

    Args:
        view: The monitors view.
        told: Queue -> the rows of activators about the queue.
    """
    silent = [row for row in view if (seen := observed(row)) is not None and seen.silent_since is not None]
    return {row["queue"]: row for row in silent if is_without_entry(told.get(row["queue"], ()))}


def is_without_entry(told: Iterable[Told]) -> bool:
    """Returns whether activators have rows about a queue, and none of them has an entry for the queue."""
    answers = [answer for each in told if (answer := _has_entry(each)) is not None]
    return bool(answers) and not any(answers)


def _has_entry(each: Told) -> bool | None:
    """Returns whether an activator has an entry for a queue; None if it does not run and its file is not known here."""
    if each.is_running is not False:
        return each.row.entry is not None
    config = _file_here(each)
    return None if config is None else config.entry_for(each.row.queue) is not None


def _file_here(each: Told) -> Config | None:
    """Returns the present content of an activator's file; None if the file is not on this machine."""
    return activators.config_of(each.row.config_file) if each.row.host == socket.gethostname() else None


def problems(
    kafka: Cluster, topics: Topics, view: Collection[dict[str, Any]], told: Mapping[str, Sequence[Told]]
) -> list[str]:
    """Returns a line for each fault, but not about topics at which this user may not look.

    Args:
        kafka: The Kafka cluster.
        topics: The topics.
        view: The monitors view.
        told: Queue -> the rows of activators about the queue.
    """
    lost = removed(view, told)
    lines = [f"{queue_names([*lost])}: {without_entry([*lost.values()])}"] if lost else []
    with suppress(UserError):  # `diagnose` says so
        missing = missing_topics(kafka, topics, told)
        lines += [f"{queue_names([each.queue])}: {each.problem}" for each in missing[:_MOST]]
    return lines


def of_groups(told: Mapping[str, Sequence[Told]]) -> list[ActivatorRow]:
    """Returns the rows of entries for consumer groups.

    If the activator of a row does not run and its file is on this machine, the topics come from the file.

    Args:
        told: Queue -> the rows of activators about the queue.
    """
    found = []
    for each in (each for rows in told.values() for each in rows if each.row.group is not None):
        row = each.row
        config = _file_here(each) if each.is_running is False else None
        if config is None:
            found.append(row)
        elif (entry := config.entry_of_group(row.group or "")) is not None:
            found.append(msgspec.structs.replace(row, topics=[*entry.topics]))
    return found


def missing_topics(kafka: Cluster, topics: Topics, told: Mapping[str, Sequence[Told]]) -> list[MissingTopic]:
    """Returns the missing topics that entries for consumer groups name.

    Raises:
        UserError: Kafka cannot be reached, or denies access.
    """
    rows = of_groups(told)
    named = {MissingTopic(name, row.group or "", row.config_file, row.queue) for row in rows for name in row.topics}
    valid = {each.topic for each in named if topic_name_problem(each.topic, topics) is None}
    existing = Admin(kafka).find_topics(dict.fromkeys(valid, (AclOperation.DESCRIBE,))) if valid else {}
    return sorted(each for each in named if each.topic not in existing)
