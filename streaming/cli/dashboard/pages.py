"""The pages about queues: all queues, one queue, and all activations."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.datastructures import QueryParams

from streaming.cli import queue_facts, queue_show
from streaming.cli.dashboard import queue_history
from streaming.cli.dashboard.group_map import GroupMaps
from streaming.cli.dashboard.kept import Kept
from streaming.cli.dashboard.live_view import KEPT_ACTIVATIONS, LiveView
from streaming.cli.dashboard.pictures import SPARK_MS, picture, sparkline
from streaming.cli.dashboard.server import Page, Part
from streaming.cli.dashboard.table_pages import paged
from streaming.cli.dashboard.timeline import Timeline, timeline
from streaming.cli.meant import did_you_mean
from streaming.cli.monitor_rows import next_check_time, observed
from streaming.cli.monitors_view import STATES, meaning, shown_state, shown_unread
from streaming.cli.present import Present
from streaming.core.numbers import plural
from streaming.core.times import iso_ms
from streaming.system import wall_clock

_PERIODS_S = {"1m": 60, "5m": 300, "15m": 900, "1h": 3_600}
_DEFAULT_PERIOD = "5m"
# The longest time between two events of the page of one queue. Its sentences change when an instant passes.
_EVERY_S = 1.0
_SHOWN_ACTIVATIONS = 200
_SHOWN_READERS = 50
_YET = (
    " A queue is there once a command has created it, or once the monitor has written its first row, about a "
    "batch after its first message. The page shows it then by itself."
)
_SORTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "queue": lambda row: row["queue"],
    "state": lambda row: (row["shown_state"], row["queue"]),
    "unread": lambda row: (-row["unread_messages"], row["queue"]),
    "readers": lambda row: (-row["tasks_waiting"] - (row.get("members") or 0), row["queue"]),
    "sequence": lambda row: (-row["activation_sequence"], row["queue"]),
    "activated": lambda row: (_reversed(row["last_activated_time"]), row["queue"]),
    "check": lambda row: (row["next_check"] or "~", row["queue"]),
}


def _reversed(iso: str | None) -> tuple[int, ...]:
    """Returns a key that sorts instants from the latest to the earliest, and None last."""
    return tuple(-ord(each) for each in iso) if iso else (0,)


class QueuePages:
    """Builds the pages: of many queues from the live view, of one queue from the facts that `queue show` reads."""

    def __init__(self, view: LiveView) -> None:
        self._view = view
        self._kept = Kept(silent_since_ms=view.contact.silent_since_ms)
        self._maps = GroupMaps(view.cluster)

    def close(self) -> None:
        """Closes the connections to Kafka."""
        self._maps.close()

    def queues(self, query: QueryParams) -> Page:
        """Returns the page of queues: all queues, or the queues that a search finds, sorted, a hundred on each page."""
        search, state, sort = query.get("search", ""), query.get("state", ""), query.get("sort", "unread")
        sort = sort if sort in _SORTS else "unread"
        present, warnings = self._view.programs()
        rows = [
            row | {"shown_state": shown_state(row, present), "next_check": next_check_time(row)}
            for row in self._view.monitors()
        ]
        states = Counter(row["shown_state"] for row in rows)
        found = [row for row in rows if search.casefold() in row["queue"].casefold()]
        found = [row for row in found if state in ("", row["shown_state"])]
        found.sort(key=_SORTS[sort])
        page = paged(found, query.get("page"))
        until_ms = self._view.contact.silent_since_ms() or wall_clock.now_ms()
        known_ms = self._rows_until_ms()
        values = {
            "rows": [self._queue_row(row, until_ms, known_ms, present) for row in page.rows],
            "minutes": SPARK_MS // 60_000,
            "paged": page,
            "all": len(rows),
            "is_read": self._view.topics.monitors not in self._view.unfinished,
            "path": "/",
            "query": {"search": search, "state": state, "sort": sort},
            "meanings": {state: meaning(state, is_now=present.monitor) for state in STATES if state in states},
            "is_current": present.monitor,
        }
        form = {"search": search, "state": state, "sort": sort, "sorts": list(_SORTS), "states": list(STATES)}
        totals = {"states": states, "all": len(rows), "chosen": state, "readers": _all_readers(rows, present)}
        parts = [
            Part("summary", "states.html", totals),
            Part("warnings", "warnings.html", {"warnings": warnings}),
            Part("queues", "queues.html", values),
        ]
        return Page("Queues", parts, "queues_form.html", form)

    def _queue_row(self, row: dict[str, Any], until_ms: int, known_ms: int | None, present: Present) -> dict[str, Any]:
        last = self._view.last_activation(row["queue"])
        return row | {
            "spark": sparkline(self._view.unread(row["queue"]), until_ms, known_ms),
            "unread": shown_unread(row, present),
            "readers": _readers(row, present),
            "reason": last.reason if last is not None and last.sequence == row["activation_sequence"] else None,
        }

    def queue(self, query: QueryParams) -> Page:
        """Returns the page of one queue: why a reader is or is not started now, the timeline, and all known facts."""
        name, period = query.get("name", ""), query.get("period", _DEFAULT_PERIOD)
        period = period if period in _PERIODS_S else _DEFAULT_PERIOD
        if not name:
            return Page("Queue", [Part("answer", "error.html", {"error": "No queue is named."})], status=404)
        answer = self._kept.get(f"facts {name}", partial(self._facts, name))
        line = self._kept.get(f"timeline {period} {name}", partial(self._timeline, name, _PERIODS_S[period])).found
        facts = queue_facts.with_row(answer.found, self._view.monitor(name))
        if not facts.is_known:
            meant = did_you_mean(name, (row["queue"] for row in self._view.monitors()))
            error = f"There is no queue {name!r} yet.{meant}{_YET}"
            return Page(name, [Part("answer", "error.html", {"error": error})], status=404)
        shown = {"name": name, "period": period, "periods": list(_PERIODS_S), "most_readers": _SHOWN_READERS}
        shown["hosts"] = {row["task_id"]: row["host"] for row in facts.tasks}
        shown["is_activated"] = bool(facts.activators)
        group = []
        if facts.group is not None:
            found = self._kept.get(f"map {facts.group.name}", partial(self._maps.of, facts.group.name)).found
            backlog = None if found.finding is None else found.finding.backlog
            facts = replace(facts, group=replace(facts.group, backlog=backlog))
            group = [Part("group", "group.html", {"map": found})]
        sections = queue_show.sections(facts)
        _, *why = sections.pop("state")  # the first line is in the first part
        if line.activations:  # the table of activations says more
            sections.pop("last notified")
        parts = [
            Part("answer", "answer.html", _answer(facts) | {"why": why}),
            Part("warnings", "warnings.html", {"warnings": answer.warnings}),
            Part("timeline", "timeline.html", {"line": line, "picture": picture(line), **shown}),
            *group,
            Part("facts", "facts.html", {"sections": sections}),
        ]
        return Page(name, parts, every_s=_EVERY_S)

    def _facts(self, name: str) -> queue_facts.QueueFacts:
        facts = queue_facts.find(self._view.cluster, self._view.topics, name)
        if facts.is_known:
            queue_facts.look_around(self._view.cluster, self._view.topics, facts, as_json=True)
        return facts

    def _timeline(self, name: str, period_s: int) -> Timeline:
        until_ms = wall_clock.now_ms()
        from_ms = until_ms - period_s * 1000
        history = queue_history.read(self._view.cluster, self._view.topics, name, from_ms)
        row = self._view.monitor(name)
        if not history.rows and row is not None and (iso_ms(row["update_time"]) or until_ms) < from_ms:
            history.before = row
        return timeline(history, from_ms, until_ms, self._rows_until_ms())

    def _rows_until_ms(self) -> int | None:
        """Returns the time until which rows are known if no monitor runs; None if one runs, or if this is not known."""
        return iso_ms(self._view.as_of() or "") if self._view.contact.monitor else None

    def activity(self, query: QueryParams) -> Page:
        """Returns the page of the last activations, newest first."""
        search = query.get("search", "")
        all_found = self._view.activations()
        found = [each for each in all_found if search.casefold() in each.queue.casefold()]
        topics = self._view.topics
        is_read = self._view.unfinished.isdisjoint((topics.activations, topics.tasks))
        values = {
            "activations": found[:_SHOWN_ACTIVATIONS],
            "found": len(found),
            "all": len(all_found),
            "kept": KEPT_ACTIVATIONS,
            "is_read": is_read,
        }
        return Page("Activity", [Part("activity", "activity.html", values)], "search_form.html", {"search": search})


def _answer(facts: queue_facts.QueueFacts) -> dict[str, Any]:
    """Returns the values of the first part: why a reader is, or is not, started now."""
    return {"row": facts.row, "sentence": queue_show.headline_of(facts), "since": queue_show.since(facts)}


def _readers(row: Mapping[str, Any], present: Present) -> str:
    """Returns the readers of a queue by their kind: members of the queue's group, readers that wait, and tasks."""
    seen = observed(row, present)
    parts = [_waiting(row["tasks_waiting"], present) if seen is None else f"{seen.members:,} in the group"]
    if seen is not None and seen.is_late(row["unread_messages"]):
        parts = ["members of the group unknown"]
    if row["max_queue_readers"] is not None:
        requested = "requested " if present.is_without_host else ""
        parts.append(f"tasks {requested}{row['tasks_running']:,} of {row['max_queue_readers']:,}")
    return ", ".join(parts)


def _all_readers(rows: Sequence[Mapping[str, Any]], present: Present) -> str:
    """Returns the sentence about the readers of all queues. A task that waits in RECEIVE counts twice."""
    groups = [(seen, row["unread_messages"]) for row in rows if (seen := observed(row, present)) is not None]
    members = [seen.members for seen, unread in groups if not seen.is_late(unread)]
    counts = []
    if any(row["max_queue_readers"] is not None for row in rows):
        counts.append(plural(sum(row["tasks_running"] for row in rows), "task"))
    if members:
        counts.append(f"{plural(sum(members), 'member')} of consumer groups")
    if unknown := len(groups) - len(members):
        counts.append(f"members of {plural(unknown, 'consumer group')} unknown")
    counts.append(_waiting(sum(row["tasks_waiting"] for row in rows), present))
    return f"Readers: {', '.join(counts)}."


def _waiting(count: int, present: Present) -> str:
    return f"{count:,} {'waiting' if present.monitor else 'waited'} in RECEIVE"
