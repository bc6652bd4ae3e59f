"""Reads what the activators have published about queues, and whether they run; and says it in sentences."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from streaming.cli.lines import say
from streaming.core.times import iso_time
from streaming.daemons.activator import words
from streaming.daemons.activator.settings import DEFAULT_GROUP_ID
from streaming.errors import UserError
from streaming.kafka.admin import ADMIN_TIMEOUT_S, Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.latest_rows import LatestRows
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system.ages import instant_utc
from streaming.wire.activator_rows import ActivatorRow, decode_row
from streaming.wire.topics import Topics


@dataclass(frozen=True)
class Told:
    """The row of one activator about a queue.

    Attributes:
        row: Its row.
        is_running: Whether the activator runs; None: this user may not look.
    """

    row: ActivatorRow
    is_running: bool | None

    def why(self) -> list[str]:
        """Returns why no program is started; nothing if nothing keeps the activator from it."""
        if self.is_running is False:
            return [f"{words.where(self.row)} does not run: it is not in the consumer group {self.row.group_id}"]
        return words.troubles(self.row, _now()) or words.holds(self.row)

    def lines(self) -> list[str]:
        """Returns all that is known, for people."""
        row = self.row
        if row.entry is None or row.refusal is not None:
            return self.why()
        ended = row.last_exit
        last = [f"the last one ended at {instant_utc(ended.at)}: {ended.how}"] if ended is not None else []
        if self.is_running is False:
            left = [f"entry {row.entry}", words.programs(row), *last]
            return [*self.why(), f"when it last wrote: {'; '.join(left)}"]
        return [f"{words.where(row)}, entry {row.entry}", words.programs(row), *words.limits(row), *last, *self.why()]

    def as_json(self) -> dict[str, Any]:
        """Returns all that is known, as plain values."""
        return {**msgspec.to_builtins(self.row), "is_running": self.is_running, "why": self.why()}


def read(kafka: Cluster, topics: Topics, queue: str | None = None) -> dict[str, list[Told]]:
    """Returns queue -> what the activators have said about it, without what others than those concerned have said.

    If this user may not read it, says so.

    Args:
        kafka: The Kafka cluster.
        topics: The topics.
        queue: The only queue of interest; None: all.
    """
    latest = LatestRows("row of an activator", decode_row, lambda line: say(line, err=True))
    try:
        with TopicFollower(kafka, [topics.activators], Start.BEGINNING) as follower:
            for message in follower.to_end():
                latest.take(message)
    except UserError as error:
        say(f"what the activators do is unknown: {error}", err=True)
        return {}
    rows = [row for row in latest.rows.values() if queue in (None, row.queue)]
    members = {group_id: _members(kafka, group_id) for group_id in {row.group_id for row in rows}}
    found: dict[str, list[Told]] = {}
    for row in rows:
        running = members[row.group_id]
        found.setdefault(row.queue, []).append(Told(row, None if running is None else row.activator in running))
    return {name: concerned(told) for name, told in found.items()}


def concerned(told: list[Told]) -> list[Told]:
    """Returns what counts: of the consumer groups, those with an entry for the queue, if one has one.

    Of each group it is the row of an activator that runs, if one does, with an entry, if one has one; and that of the
    latest decision, because the queue may have moved to another activator.
    """
    newest = []
    for group_id in {each.row.group_id for each in told}:
        group = [each for each in told if each.row.group_id == group_id]
        group = [each for each in group if each.is_running is not False] or group
        group = [each for each in group if each.row.entry is not None] or group
        newest.append(max(group, key=_decided))
    newest.sort(key=lambda each: (_decided(each), each.row.group_id))
    return [each for each in newest if each.row.entry is not None] or newest


def _decided(told: Told) -> str:
    return "" if told.row.last is None else told.row.last.at


def problems(found: dict[str, list[Told]], monitors: Iterable[dict[str, Any]]) -> list[str]:
    """Returns a line for each queue that waits for a reader while something is wrong with its activator."""
    waiting = [row["queue"] for row in monitors if row["state"] == "NOTIFIED"]
    return [
        f"{queue}: {'; '.join(reasons)}"
        for queue in waiting
        for each in found.get(queue, [])
        if (reasons := words.troubles(each.row, _now()) if each.is_running is not False else each.why())
    ]


def nobody(kafka: Cluster, topics: Topics) -> str:
    """Returns the sentence about a queue of which no activator has said anything."""
    group_id = topics.prefix + DEFAULT_GROUP_ID
    sentence = "none has got a notification of this queue"
    if _members(kafka, group_id) == set():
        start = "Start one: `queue-activation activator --config FILE`"
        return f"{sentence}, and none is in the consumer group {group_id}. {start}"
    return sentence


def _members(kafka: Cluster, group_id: str) -> set[str] | None:
    """Returns the ids of the activators in a consumer group; None if Kafka does not tell this user."""
    try:
        return {each.instance_id or "" for each in Admin(kafka).members(group_id, ADMIN_TIMEOUT_S)}
    except UserError as error:
        say(f"whether an activator runs is unknown: {error}", err=True)
        return None


def _now() -> str:
    return iso_time(time.time_ns() // 1_000_000)
