"""Reads what the activators have published about queues, and whether they run; and says it in sentences."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from streaming.cli.lines import say
from streaming.cli.presence import how_to_start
from streaming.core.times import iso_time
from streaming.daemons.activator import words
from streaming.daemons.activator.settings import DEFAULT_GROUP_ID
from streaming.errors import UserError
from streaming.kafka.admin import ADMIN_TIMEOUT_S, Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.latest_rows import LatestRows
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system import wall_clock
from streaming.system.ages import age, instant_utc
from streaming.wire.activator_rows import ActivatorRow, decode_dated_row
from streaming.wire.topics import Topics


@dataclass(frozen=True)
class Told:
    """The row of one activator about a queue.

    Attributes:
        row: Its row.
        is_running: Whether the activator runs; None: this user may not look.
        at_ms: When it wrote the row.
    """

    row: ActivatorRow
    is_running: bool | None
    at_ms: int

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
            ago = age(self.at_ms, wall_clock.now_ms())
            return [f"{line}." for line in self.why()] + [f"When it last wrote, {ago} ago: {'; '.join(left)}"]
        return [f"{words.where(row)}, entry {row.entry}", words.programs(row), *words.limits(row), *last, *self.why()]

    def as_json(self) -> dict[str, Any]:
        """Returns all that is known, as plain values."""
        return {**msgspec.to_builtins(self.row), "is_running": self.is_running, "why": self.why()}


def read(kafka: Cluster, topics: Topics, queues: Collection[str]) -> dict[str, list[Told]]:
    """Returns queue -> what the activators have said about it, without what others than those concerned have said.

    If this user may not read it, says so.

    Args:
        kafka: The Kafka cluster.
        topics: The topics.
        queues: The queues of interest.
    """
    latest = LatestRows("row of an activator", decode_dated_row, lambda line: say(line, err=True))
    try:
        with TopicFollower(kafka, [topics.activators], Start.BEGINNING) as follower:
            for message in follower.to_end():
                latest.take(message)
    except UserError as error:
        say(f"what the activators do is unknown: {error}", err=True)
        return {}
    rows = [(row, at_ms) for row, at_ms in latest.rows.values() if row.queue in queues]
    members = {group_id: _members(kafka, group_id) for group_id in {row.group_id for row, _ in rows}}
    found: dict[str, list[Told]] = {}
    for row, at_ms in rows:
        running = members[row.group_id]
        is_running = None if running is None else row.activator in running
        found.setdefault(row.queue, []).append(Told(row, is_running, at_ms))
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


def reasons(told: Told) -> list[str]:
    """Returns what keeps the activator from starting a reader although something is wrong; nothing if nothing is."""
    return words.troubles(told.row, _now()) if told.is_running is not False else told.why()


def problems(kafka: Cluster, topics: Topics, monitors: Iterable[dict[str, Any]]) -> list[str]:
    """Returns a line for each queue that waits for a reader while something is wrong with its activator.

    Kafka is asked only if a queue waits.

    Args:
        kafka: The Kafka cluster.
        topics: The topics.
        monitors: The monitors view.
    """
    waiting = [row["queue"] for row in monitors if row["state"] == "NOTIFIED"]
    found = read(kafka, topics, set(waiting)) if waiting else {}
    return [
        f"{queue}: {'; '.join(wrong)}" for queue in waiting for each in found.get(queue, []) if (wrong := reasons(each))
    ]


def nobody(kafka: Cluster, topics: Topics) -> str:
    """Returns the sentence about a queue of which no activator has said anything."""
    sentence, missing = "none has got a notification of this queue", absence(kafka, topics)
    return sentence if missing is None else f"{sentence}, and {missing}"


def absence(kafka: Cluster, topics: Topics) -> str | None:
    """Returns the sentence about activators of which none runs; None if one runs, or this is not known."""
    group_id = topics.prefix + DEFAULT_GROUP_ID
    if _members(kafka, group_id) != set():
        return None
    return f"none is in the consumer group {group_id}. {how_to_start(kafka, topics, 'activator')}"


def _members(kafka: Cluster, group_id: str) -> set[str] | None:
    """Returns the ids of the activators in a consumer group; None if Kafka does not tell this user."""
    try:
        return {each.instance_id or "" for each in Admin(kafka).members(group_id, ADMIN_TIMEOUT_S)}
    except UserError as error:
        say(f"whether an activator runs is unknown: {error}", err=True)
        return None


def _now() -> str:
    return iso_time(wall_clock.now_ms())
