"""Finds faults of queues: no activator or observer, readers that crash, or a queue OFF with unread messages."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from streaming.cli import activators, group_entries, group_facts, presence, queue_show, tables, task_failures
from streaming.cli.activators import Told
from streaming.cli.monitor_rows import (
    EXAMPLES,
    needs_host,
    observed,
    or_drop,
    queue_names,
    unread_messages,
    without_entry,
)
from streaming.cli.present import NOBODY_MISSING, Present
from streaming.cli.queue_facts import QueueFacts
from streaming.cli.routing.definition_faults import Fault
from streaming.kafka import own_programs
from streaming.kafka.clients import Cluster
from streaming.system import hints
from streaming.wire.topics import Topics

# The most faults of one kind that are told.
_MAX_FAULTS = 10
# The most consumer groups that are looked at, because each costs some requests.
_MAX_GROUPS = 100
# The most consumer groups without an entry that are looked at, because each costs a connection.
_MAX_REMOVED = 10


def find(kafka: Cluster, topics: Topics, told: dict[str, list[Told]]) -> Iterator[Fault]:
    """Yields the faults of the queues that the monitor knows.

    Args:
        kafka: The cluster.
        topics: The topics.
        told: Queue -> the rows of activators about the queue.

    Raises:
        UserError: Kafka cannot be reached or denies access, or a topic is missing.
    """
    view = tables.read_monitors(kafka, topics)
    down, stopping = _without_host(view, kafka, topics)
    if down is not None:
        yield Fault("program down", "host", down)
    begins = own_programs.starting(kafka, topics, "activator")
    if begins:  # an activator that is about to start is not a fault
        told = activators.excused(told)
    else:
        down_groups = activators.down(kafka, topics, told, {row["queue"] for row in view})
        for sentence in down_groups.values():
            yield Fault("program down", "activator", sentence)
        told = activators.excused(told, down_groups)
    # `observer_faults` tells that these have no entry.
    removed = group_entries.removed(view, told)
    if rows := [row for row in view if _is_of_interest(row, removed)]:
        waiting = {row["queue"] for row in rows if row["state"] == "NOTIFIED"} & told.keys()
        told |= activators.with_starts(kafka, topics, {queue: told[queue] for queue in waiting})
        is_asked = not begins and any(activators.has_nobody(row, told) for row in rows)
        nobody = activators.absence(kafka, topics, activators.file_of(topics, told)) if is_asked else None
        monitor, host = own_programs.may_run(kafka, topics, "monitor"), None if down is None else False
        yield from faults(rows, told, nobody, Present(monitor, host, stopping=stopping))
    if not own_programs.starting(kafka, topics, "observer"):
        yield from observer_faults(view, removed, kafka, topics, activators.file_of_observer(topics, told))
    yield from _of_unseen_groups(view, told, kafka)
    yield from _of_missing_topics(told, kafka, topics)  # last, because this user may not be allowed to look


def _of_missing_topics(told: Mapping[str, Sequence[Told]], kafka: Cluster, topics: Topics) -> Iterator[Fault]:
    """Yields the missing topics that entries for consumer groups name."""
    for each in group_entries.missing_topics(kafka, topics, told)[:_MAX_FAULTS]:
        yield Fault("no topic", f"consumer group {each.group}", each.problem)


def _of_unseen_groups(
    view: Iterable[dict[str, Any]], told: Mapping[str, Sequence[Told]], kafka: Cluster
) -> Iterator[Fault]:
    """Yields the faults of consumer groups with an entry, if no observer can see their messages."""
    rows = {row["queue"]: row for row in view}
    seen = {name for name, row in rows.items() if row.get("members") or row["unread_messages"] > 0}
    named = [each for each in group_entries.of_groups(told) if each.queue not in seen and not each.topics]
    found = 0
    for each in named[:_MAX_GROUPS]:
        facts = QueueFacts(each.queue, None, None, rows.get(each.queue), activators=[*told[each.queue]])
        facts.group = group_facts.find(kafka, each.group or each.queue, [])
        if facts.blind and found < _MAX_FAULTS:
            found += 1
            yield Fault("group unseen", f"consumer group {each.group}", facts.blind)


def _without_host(view: Iterable[dict[str, Any]], kafka: Cluster, topics: Topics) -> tuple[str | None, frozenset[str]]:
    """Returns the sentence about hosts, if queues with internal activation need a host and none runs.

    Also returns the hosts that are stopping.
    """
    names = [row["queue"] for row in view if needs_host(row)]
    down = None
    with presence.told_if_denied("whether a host runs"):
        down = own_programs.absence(kafka, topics, "host", f" ({queue_names(names)})") if names else None
    stopping = presence.stopping_hosts(kafka, topics) if down is not None else frozenset()
    return (f"{down}. {presence.are_stopping(stopping)}" if stopping else down), stopping


def observer_faults(
    view: Sequence[dict[str, Any]],
    removed: Mapping[str, dict[str, Any]],
    kafka: Cluster,
    topics: Topics,
    file: own_programs.ActivatorFile,
) -> Iterator[Fault]:
    """Yields the faults of the observer on which queues depend, and of queues that no observer watches any more.

    Args:
        view: Rows of the monitors view.
        removed: Queue -> row of the consumer groups that no observer watches any more.
        kafka: The cluster.
        topics: The topics.
        file: The activator's file that names the consumer groups, if it is known.

    Raises:
        UserError: Kafka cannot be reached, or denies access.
    """
    seen = {row["queue"]: (one, row["unread_messages"]) for row in view if (one := observed(row)) is not None}
    missing = [name for name, (one, unread) in seen.items() if one.is_missing(unread)]
    quiet = [name for name in removed if name not in missing][:_MAX_REMOVED]
    needed = {*missing, *(name for name in quiet if group_facts.may_have_work(kafka, name))}
    if lost := [name for name in removed if name in needed]:
        yield Fault("no reader", queue_names(lost), without_entry([removed[name] for name in lost]))
    watched = [name for name in seen if name not in removed]
    which = f" ({queue_names(watched)})" if watched else ""
    down = own_programs.absence(kafka, topics, "observer", which, file) if watched else None
    if down is not None:
        yield Fault("program down", "observer", down)
    elif silent := [name for name in missing if name not in removed]:
        why = (
            f"it runs, but has not reported {queue_names(silent)} for longer than the quiet window, so no "
            f"reader is started. Does an entry of its file name the group? Otherwise {or_drop(silent)}. If one does, "
            "/readyz or the end of its log says why; its --report-interval must be half of the monitor's "
            "--quiet-window at most"
        )
        yield Fault("program stuck", "observer", why)


def faults(
    rows: Sequence[dict[str, Any]],
    told: Mapping[str, Sequence[Told]],
    nobody: str | None,
    present: Present = NOBODY_MISSING,
) -> Iterator[Fault]:
    """Yields the faults of queues: first queues that are OFF, then the other faults, the most frequent first.

    Args:
        rows: Rows of the monitors view.
        told: Queue -> the rows of activators about the queue.
        nobody: The sentence that no activator runs; None if an activator runs, or if this is not known.
        present: The programs that run.
    """
    yield from _off([row for row in rows if not row["is_receive_enabled"] and row["unread_messages"] > 0])
    found: dict[Fault, list[str]] = defaultdict(list)
    for row in rows:
        for fault in dict.fromkeys(_faults_of(row, told.get(row["queue"], ()), nobody, present)):
            found[fault].append(row["queue"])
    more = "" if len(found) <= _MAX_FAULTS else f". All queues: `{hints.command('queues')}`"
    told_of: Counter[str] = Counter()
    for fault, queues in sorted(found.items(), key=lambda each: (-len(each[1]), each[1][0])):
        told_of[fault.kind] += 1
        if told_of[fault.kind] <= _MAX_FAULTS:
            yield Fault(fault.kind, queue_names(queues), f"{fault.problem}{more}")


def _is_of_interest(row: Mapping[str, Any], lost: Collection[str]) -> bool:
    is_told = row["queue"] in lost and row["is_receive_enabled"]
    return bool(row.get("task_failures")) or (row["state"] != "INACTIVE" and not is_told)


def _faults_of(row: dict[str, Any], told: Iterable[Told], nobody: str | None, present: Present) -> Iterator[Fault]:
    """Yields the faults of a queue, without its name."""
    waits = row["state"] == "NOTIFIED"
    for each in told if row["is_receive_enabled"] else ():  # an activator starts nothing for a queue that is OFF
        # Another program may start the readers of a queue. A missing entry is a fault only if the queue waits.
        is_its_own = each.row.entry is not None and each.row.refusal is None and each.is_running is not False
        if (waits or (is_its_own and row["unread_messages"] > 0)) and (why := "; ".join(each.wrong())):
            yield Fault("programs fail" if is_its_own else "no reader", "", why)
        if waits:
            yield from (Fault("programs fail", "", line) for line in each.past())
    if nobody is not None and activators.has_nobody(row, {row["queue"]: [*told]}):
        yield Fault("no reader", "", activators.no_reader(nobody))
    if (failure := task_failures.failure(row, present)) is not None:
        yield Fault("tasks fail", "", failure)


def _off(rows: Sequence[dict[str, Any]]) -> Iterator[Fault]:
    """Yields a fault for each queue that is OFF, or a single fault if there are many such queues."""
    names = [row["queue"] for row in rows]
    if len(rows) <= EXAMPLES:
        for row in rows:
            show = hints.command("queue", "show", row["queue"])
            yield Fault("queue OFF", queue_names([row["queue"]]), f"{_why_off(row)} `{show}` says which it was")
        return
    unread = sum(row["unread_messages"] for row in rows)
    is_uncertain = any(row.get("is_count_uncertain") for row in rows)
    one = rows[0] | {"queue": "QUEUE", "unread_messages": unread, "is_count_uncertain": is_uncertain}
    why = f"{_why_off(one)} All queues: `{hints.command('queues')}`"
    yield Fault("queue OFF", queue_names(names), why)


def _why_off(row: dict[str, Any]) -> str:
    why = queue_show.explanation(QueueFacts(row["queue"], None, None, row))
    return " ".join([f"{unread_messages(row)}.", *why])
