"""Reads the rows that activators publish about queues, and says in sentences whether the activators run."""

import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from streaming.cli.lines import say
from streaming.cli.monitor_rows import observed, queue_names
from streaming.core.times import iso_time
from streaming.daemons.activator import words
from streaming.daemons.activator.config import Config, ProgramEntry
from streaming.daemons.activator.settings import DEFAULT_GROUP_ID
from streaming.errors import UserError
from streaming.kafka.admin import ADMIN_TIMEOUT_S, Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.latest_rows import LatestRows
from streaming.kafka.own_programs import ActivatorFile, Unknown, how_to_start, with_advice
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system import hints, runs, wall_clock
from streaming.system.ages import age
from streaming.system.toml_file import load
from streaming.wire.activator_rows import ActivatorRow, decode_dated_row
from streaming.wire.topics import Topics


@dataclass(frozen=True)
class Told:
    """The row that one activator has written about a queue.

    Attributes:
        row: The row.
        is_running: Whether the activator runs; None: this user may not see that.
        at_ms: When it wrote the row.
        start: Advice on starting the activator, if it does not run.
        is_excused: Whether its absence is not a fault of the queue: a `run` is about to start the activator, or another
            sentence reports the absence.
        is_told: Whether another sentence reports its absence.
    """

    row: ActivatorRow
    is_running: bool | None
    at_ms: int
    start: str = ""
    is_excused: bool = False
    is_told: bool = False

    def why(self) -> list[str]:
        """Returns the reasons why the activator starts no program; an empty list if it may start a program."""
        if self.is_running is False:
            return [*self._absence(), *self.past()]
        return words.troubles(self.row, _now()) or words.holds(self.row)

    def wrong(self) -> list[str]:
        """Returns the faults that keep the activator from starting a reader; an empty list if there are none.

        Leaves out faults from before the activator ended.
        """
        if self.is_running is False:
            return [] if self.is_excused else self._absence()
        return words.troubles(self.row, _now())

    def past(self) -> list[str]:
        """Returns the sentence about programs that failed before the activator ended; an empty list if it runs."""
        found = self._past_troubles() if self.is_running is False else []
        return [self._last_wrote(found)] if found else []

    def _past_troubles(self) -> list[str]:
        return words.past_troubles(self.row, iso_time(self.at_ms))

    def _absence(self) -> list[str]:
        """Returns the sentence that the activator does not run, after any sentence about a missing entry."""
        start = f". {self.start}" if self.start else ""
        lacking = words.lacking(self.row, is_past=True)
        if lacking and self.is_told:
            return lacking
        name = "it" if lacking else words.where(self.row)
        return [*lacking, f"{name} does not run: it is not in the consumer group {self.row.group_id}{start}"]

    def _last_wrote(self, known: Sequence[str]) -> str:
        return f"when it last wrote about the queue, {age(self.at_ms, wall_clock.now_ms())} ago: {'; '.join(known)}"

    def reader(self, activated_at: str | None) -> str:
        """Returns the fate of the reader that was requested last; empty if the reader may still come.

        Args:
            activated_at: When the reader was requested.
        """
        row, ended, is_gone = self.row, self.row.last_exit, self.is_running is False
        and_gone = ", and does not run any more" if is_gone else ""
        if row.entry is None or row.refusal is not None:
            return f"the activator {'had' if is_gone else 'has'} no entry that would start it{and_gone}"
        if row.held is not None and row.held.why:
            return f"the activator {'held' if is_gone else 'holds'} it back{and_gone}: {row.held.why}"
        started = [each.pid for each in row.programs if activated_at is not None and each.start_time >= activated_at]
        if started and is_gone:
            return f"the activator had started process {started[-1]} for it{and_gone}"
        if not is_gone and (in_vain := words.why_not_expected(row)):
            return in_vain
        if (is_gone or not row.programs) and ended and activated_at is not None and ended.at >= activated_at:
            return f"its program has exited: {ended.how}"
        return "the activator that would start it does not run" if is_gone else ""

    def lines(self, *, is_off: bool = False) -> list[str]:
        """Returns the row of the activator as text.

        Args:
            is_off: Whether the queue is OFF, so that nothing is started whatever the activator does.
        """
        row = self.row
        if row.entry is None or row.refusal is not None:
            return [f"{line[0].upper()}{line[1:]}." for line in self.why()] if self.is_running is False else self.why()
        last = words.last_end(row)
        if self.is_running is False:
            known = [f"entry {row.entry}", words.programs(row, is_past=True), *last, *self._past_troubles()]
            was = self._last_wrote(known)
            return [*(f"{line}." for line in self._absence()), f"{was[0].upper()}{was[1:]}"]
        why = ["nothing is started, because the queue is OFF", *words.log(row)] if is_off else self.why()
        return [f"{words.where(row)}, entry {row.entry}", words.programs(row), *words.limits(row), *last, *why]

    def as_json(self) -> dict[str, Any]:
        """Returns all known facts as plain values."""
        return {**msgspec.to_builtins(self.row), "is_running": self.is_running, "why": self.why()}


def read(kafka: Cluster, topics: Topics, queues: Collection[str] | None = None) -> dict[str, list[Told]]:
    """Returns queue -> the rows about the queue, only of the activators that `concerned` picks.

    If this user may not read the rows, says so. Leaves out the row of an activator that has ended without an entry for
    a queue, if the file of a `run` that runs on this machine has one: its activator may not have written a row yet.

    Args:
        kafka: The Kafka cluster.
        topics: The topics.
        queues: The queues of interest; None: all queues.
    """
    try:
        latest = _latest(kafka, topics, lambda line: say(line, err=True))
    except UserError as error:
        say(f"what the activators do is unknown: {error}", err=True)
        return {}
    rows = [(row, at_ms) for row, at_ms in latest if queues is None or row.queue in queues]
    members = {group_id: _members(kafka, group_id) for group_id in {row.group_id for row, _ in rows}}
    found: dict[str, list[Told]] = {}
    config = _config_of_run(kafka, topics)
    for row, at_ms in rows:
        running = members[row.group_id]
        is_running = None if running is None else row.activator in running
        if row.entry is None and is_running is False and config is not None and config.entry_for(row.queue) is not None:
            continue
        found.setdefault(row.queue, []).append(Told(row, is_running, at_ms))
    return {name: concerned(told) for name, told in found.items()}


def _latest(kafka: Cluster, topics: Topics, say_line: Callable[[str], None]) -> list[tuple[ActivatorRow, int]]:
    """Returns the latest rows with their times in ms; raises UserError."""
    latest = LatestRows("row of an activator", decode_dated_row, say_line)
    with TopicFollower(kafka, [topics.activators], Start.BEGINNING) as follower:
        for message in follower.to_end():
            latest.take(message)
    return list(latest.rows.values())


def file_here(kafka: Cluster, topics: Topics) -> str | None:
    """Returns the activator's file on this machine, for a queue about which no activator has written a row.

    This is the file of a `run` that runs, of the activator that this user has started last, or of the activator on this
    machine that wrote last. Returns None if none of them is known.
    """
    run = runs.advised(kafka.bootstrap_servers, topics.prefix)
    started = run.file if run is not None and run.is_running else None
    if file := started or runs.last_file(kafka.bootstrap_servers, topics.prefix):
        return file
    here = socket.gethostname()
    rows: list[tuple[ActivatorRow, int]] = []
    with suppress(UserError):  # which has been said
        rows = [(row, at_ms) for row, at_ms in _latest(kafka, topics, lambda _line: None) if row.host == here]
    if rows:
        return max(rows, key=lambda each: each[1])[0].config_file
    return None if run is None else run.file


def config_of(file: str) -> Config | None:
    """Returns the content of an activator's file on this machine; None if the file is invalid or cannot be read."""
    with suppress(UserError):
        return load(Path(file), Config)
    return None


def entry_of_run(kafka: Cluster, topics: Topics, queue: str) -> ProgramEntry | None:
    """Returns the entry for a queue in the file of the `run` that runs on this machine; None without such an entry."""
    config = _config_of_run(kafka, topics)
    return None if config is None else config.entry_for(queue)


def _config_of_run(kafka: Cluster, topics: Topics) -> Config | None:
    run = runs.last(kafka.bootstrap_servers, topics.prefix)
    return config_of(run.file) if run is not None and run.is_running and run.file is not None else None


def entry_here(queue: str, file: str | None) -> str:
    """Returns the sentence about the entry for a queue about which no activator has a row.

    Args:
        queue: The queue.
        file: The activator's file on this machine; None if no file is known.
    """
    config = None if file is None else config_of(file)
    if config is None:
        return "its first notification shows whether an entry of an activator's file matches it"
    entry, refusal = config.program_for(queue)
    if entry is None:
        return f"no entry of {file} matches it: {words.ADD_ENTRY}"
    return f"the entry {entry.queue} of {file} {'matches it' if refusal is None else f'starts nothing: {refusal}'}"


def without_entry(told: Mapping[str, Sequence[Told]], queue: str) -> list[str]:
    """Returns the sentences that no running activator has an entry for a queue about which no activator has a row.

    Returns an empty list if this is not known, because a file is on another machine or cannot be read.

    Args:
        told: Queue -> the rows about the queue, of all queues.
        queue: The queue.
    """
    running = [each.row for rows in told.values() for each in rows if each.is_running]
    files = {row.config_file: config_of(row.config_file) for row in running}
    is_here = all(row.host == socket.gethostname() for row in running)
    lacks = all(config is not None and config.entry_for(queue) is None for config in files.values())
    return [f"{queue_names([queue])}: {entry_here(queue, file)}" for file in sorted(files)] if is_here and lacks else []


def excused(told: Mapping[str, Sequence[Told]], groups: Collection[str] | None = None) -> dict[str, list[Told]]:
    """Returns the rows, each marked if the absence of its activator is not a fault of the queue.

    Args:
        told: Queue -> the rows about the queue.
        groups: The consumer groups of activators whose absence another sentence reports. Rows without an entry for the
            queue stay unmarked, because their activators would not help. None: a `run` is about to start them all.
    """

    def marked(each: Told) -> Told:
        is_told = groups is not None and each.row.group_id in groups
        is_excused = each.is_running is False and (groups is None or (is_told and not words.lacking(each.row)))
        return replace(each, is_excused=is_excused, is_told=is_told)

    return {queue: [*map(marked, rows)] for queue, rows in told.items()}


def with_starts(kafka: Cluster, topics: Topics, told: Mapping[str, Sequence[Told]]) -> dict[str, list[Told]]:
    """Adds advice on starting each activator that does not run, unless this command has given the advice before.

    Args:
        kafka: The Kafka cluster, which is asked once for each activator.
        topics: The topics.
        told: Queue -> the rows about the queue.
    """
    known: dict[tuple[str, str], str] = {}

    def start(row: ActivatorRow) -> str:
        place = row.group_id, row.config_file
        if place not in known:
            known[place] = _how_to_start(kafka, topics, row)
        return known[place]

    return {
        queue: [replace(each, start=start(each.row)) if each.is_running is False else each for each in rows]
        for queue, rows in told.items()
    }


def _how_to_start(kafka: Cluster, topics: Topics, row: ActivatorRow) -> str:
    if _is_default(topics, row):
        return how_to_start(kafka, topics, "activator", row.config_file)
    command = hints.command("activator", "--config", row.config_file, "--group-id", row.group_id)
    return f"Start it: `{command}`" if hints.is_new(command) else ""


def _is_default(topics: Topics, row: ActivatorRow) -> bool:
    return row.group_id == topics.prefix + DEFAULT_GROUP_ID


def file_of(topics: Topics, told: Mapping[str, Sequence[Told]]) -> str | None:
    """Returns the file that all activators in the default consumer group have; None if there is no such file."""
    files = {each.row.config_file for rows in told.values() for each in rows if _is_default(topics, each.row)}
    return files.pop() if len(files) == 1 else None


def file_of_observer(topics: Topics, told: Mapping[str, Sequence[Told]]) -> ActivatorFile:
    """Returns the file that all activators with entries for consumer groups have.

    Returns None if nothing is known of files, or if there are several. If no file is known to name a consumer group,
    returns `Unknown.FILE`: with the file of an activator, an observer would watch nothing.
    """
    of_groups = {queue: [each for each in rows if each.row.group is not None] for queue, rows in told.items()}
    return file_of(topics, of_groups) if any(of_groups.values()) or not any(told.values()) else Unknown.FILE


def concerned(told: list[Told]) -> list[Told]:
    """Returns one row of each consumer group of activators; only rows with an entry for the queue, if there are any.

    Of the rows of a group, prefers rows of activators that run, then rows with an entry. Of these rows, picks the row
    with the latest decision, because the queue may have moved to another activator.
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


def of_interest(kafka: Cluster, topics: Topics, monitors: Iterable[Mapping[str, Any]]) -> dict[str, list[Told]]:
    """Returns the rows of activators about queues that wait for a reader, and about queues of consumer groups.

    Asks Kafka only if there are such queues.

    Args:
        kafka: The Kafka cluster.
        topics: The topics.
        monitors: The monitors view.
    """
    names = {row["queue"] for row in monitors if row["state"] == "NOTIFIED" or observed(row) is not None}
    return read(kafka, topics, names) if names else {}


def problems(
    kafka: Cluster, topics: Topics, monitors: Iterable[Mapping[str, Any]], told: Mapping[str, Sequence[Told]]
) -> list[str]:
    """Returns a line for each fault of activators, with the queues that therefore wait for a reader.

    Args:
        kafka: The Kafka cluster.
        topics: The topics.
        monitors: The monitors view.
        told: The result of `of_interest`.
    """
    waiting = [row for row in monitors if row["state"] == "NOTIFIED"]
    told = with_starts(kafka, topics, told)
    found: dict[str, list[str]] = {}
    for row in waiting:
        for each in told.get(row["queue"], []):
            # Two lines, because the first line is the same for all queues of an activator that does not run.
            for line in ("; ".join(each.wrong()), *each.past()):
                if line:
                    found.setdefault(line, []).append(row["queue"])
    lines = [f"{queue_names(queues)}: {wrong}" for wrong, queues in found.items()]
    alone = [row["queue"] for row in waiting if has_nobody(row, told)]
    missing = absence(kafka, topics, file_of(topics, told)) if alone else None
    return lines if missing is None else [*lines, f"{queue_names(alone)}: {no_reader(missing)}"]


def has_nobody(row: Mapping[str, Any], told: Mapping[str, Sequence[Told]]) -> bool:
    """Returns whether a queue waits for a reader of an activator, and no activator has a row about the queue."""
    return row["state"] == "NOTIFIED" and row["max_queue_readers"] is None and not told.get(row["queue"])


def no_reader(missing: str) -> str:
    """Returns the sentence about a queue for which no activator starts a reader, given the result of `absence`."""
    return f"no activator starts a reader: {missing}"


def nobody(missing: str | None, entry: str) -> str:
    """Returns the sentence about a queue without a row, given the results of `absence` and of `entry_here`."""
    sentence = f"none has acted on a notification of this queue; {entry}"
    return sentence if missing is None else f"{sentence}. {missing[0].upper()}{missing[1:]}"


def absence(kafka: Cluster, topics: Topics, file: str | None = None) -> str | None:
    """Returns the sentence that no activator runs; None if an activator runs, or if this is not known.

    Args:
        kafka: The cluster.
        topics: The topics.
        file: The file for the activator to start, if it is known.
    """
    group_id = topics.prefix + DEFAULT_GROUP_ID
    if _members(kafka, group_id) != set():
        return None
    return with_advice(f"none is in the consumer group {group_id}", how_to_start(kafka, topics, "activator", file))


def down(kafka: Cluster, topics: Topics, told: Mapping[str, Sequence[Told]], known: Collection[str]) -> dict[str, str]:
    """Returns consumer group with entries, but without a running activator -> the sentence that says so.

    Args:
        kafka: The Kafka cluster.
        topics: The topics.
        told: Queue -> the rows of activators about the queue.
        known: The queues that the monitor knows. Other queues count only if they stand for consumer groups.
    """
    of_group: dict[str, list[Told]] = {}
    for queue, rows in told.items():
        for each in rows:
            if each.row.entry is not None and (queue in known or each.row.group is not None):
                of_group.setdefault(each.row.group_id, []).append(each)
    sentences = {}
    for group_id, rows in sorted(of_group.items()):
        if all(each.is_running is False for each in rows):
            queues = queue_names(sorted({each.row.queue for each in rows}))
            nobody = f"none is in the consumer group {group_id}, so no program is started for notifications of {queues}"
            sentences[group_id] = with_advice(nobody, _how_to_start(kafka, topics, rows[0].row))
    run = runs.last(kafka.bootstrap_servers, topics.prefix)
    was_killed = run is not None and run.was_killed and "activator" in run.programs
    default = topics.prefix + DEFAULT_GROUP_ID
    missing = absence(kafka, topics) if was_killed and default not in of_group else None
    if missing is not None:  # it was killed before it knew of a queue
        sentences[default] = missing
    return sentences


def _members(kafka: Cluster, group_id: str) -> set[str] | None:
    """Returns the ids of the activators in a consumer group; None if this user may not look at the group."""
    try:
        return {each.instance_id or "" for each in Admin(kafka).members(group_id, ADMIN_TIMEOUT_S)}
    except UserError as error:
        say(f"whether an activator runs is unknown: {error}", err=True)
        return None


def _now() -> str:
    return iso_time(wall_clock.now_ms())
