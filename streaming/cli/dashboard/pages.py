"""The pages about queues: all of them, one of them, and what was activated."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.datastructures import QueryParams

from streaming.cli import queue_facts, queue_show
from streaming.cli.dashboard import queue_history
from streaming.cli.dashboard.group_map import GroupMaps
from streaming.cli.dashboard.kept import Kept
from streaming.cli.dashboard.live_view import LiveView
from streaming.cli.dashboard.pictures import SPARK_MS, picture, sparkline
from streaming.cli.dashboard.server import Page, Part
from streaming.cli.dashboard.table_pages import paged
from streaming.cli.dashboard.timeline import Timeline, timeline
from streaming.cli.monitor_rows import observed, state_name, unread_count
from streaming.cli.monitors_view import STATES, meaning
from streaming.core.activation.queue_monitor import Reason
from streaming.system import wall_clock

_PERIODS_S = {"1m": 60, "5m": 300, "15m": 900, "1h": 3_600}
_DEFAULT_PERIOD = "5m"
_SHOWN_ACTIVATIONS = 200
_SHOWN_READERS = 50
_SORTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "queue": lambda row: row["queue"],
    "state": lambda row: (state_name(row), row["queue"]),
    "unread": lambda row: (-row["unread_messages"], row["queue"]),
    "readers": lambda row: (-row["tasks_waiting"] - (row.get("members") or 0), row["queue"]),
    "activations": lambda row: (-row["activation_sequence"], row["queue"]),
    "activated": lambda row: (_reversed(row["last_activated_time"]), row["queue"]),
    "check": lambda row: (row["next_check_time"] or "~", row["queue"]),
}


def _reversed(iso: str | None) -> tuple[int, ...]:
    """Returns a key that sorts instants from the latest to the earliest, and "never" last."""
    return tuple(-ord(each) for each in iso) if iso else (0,)


class QueuePages:
    """Builds the pages from the live view, and for one queue from what `queue show` reads."""

    def __init__(self, view: LiveView) -> None:
        self._view = view
        self._kept = Kept(silent_since_ms=view.contact.silent_since_ms)
        self._maps = GroupMaps(view.cluster)

    def close(self) -> None:
        """Closes the connections to Kafka."""
        self._maps.close()

    def queues(self, query: QueryParams) -> Page:
        """Returns the page of all queues: those that are searched for, sorted, a hundred at a time."""
        search, state, sort = query.get("search", ""), query.get("state", ""), query.get("sort", "unread")
        sort = sort if sort in _SORTS else "unread"
        rows = self._view.monitors()
        states: dict[str, int] = {}
        for row in rows:
            states[state_name(row)] = states.get(state_name(row), 0) + 1
        found = [row for row in rows if search.casefold() in row["queue"].casefold() and state in ("", state_name(row))]
        found.sort(key=_SORTS[sort])
        page = paged(found, query.get("page"))
        until_ms = self._view.contact.silent_since_ms() or wall_clock.now_ms()
        values = {
            "rows": [self._queue_row(row, until_ms) for row in page.rows],
            "minutes": SPARK_MS // 60_000,
            "paged": page,
            "all": len(rows),
            "path": "/",
            "query": {"search": search, "state": state, "sort": sort},
            "meanings": {state: meaning for state, meaning in STATES.items() if state in states},
        }
        form = {"search": search, "state": state, "sort": sort, "sorts": list(_SORTS), "states": list(STATES)}
        summary = Part("summary", "states.html", {"states": states, "all": len(rows), "chosen": state})
        return Page("Queues", [summary, Part("queues", "queues.html", values)], "queues_form.html", form)

    def _queue_row(self, row: dict[str, Any], until_ms: int) -> dict[str, Any]:
        seen, last = observed(row), self._view.last_activation(row["queue"])
        reason = last.reason if last is not None and last.sequence == row["activation_sequence"] else None
        return {
            "queue": row["queue"],
            "state": state_name(row),
            "unread": unread_count(row),
            "spark": sparkline(self._view.unread(row["queue"]), until_ms),
            "waiting": row["tasks_waiting"],
            "members": None if seen is None else seen.members,
            "is_observed": seen is not None,
            "tasks": None if row["max_queue_readers"] is None else (row["tasks_running"], row["max_queue_readers"]),
            "failures": row.get("task_failures", 0),
            "activations": row["activation_sequence"],
            "activated": row["last_activated_time"],
            "reason": reason,
            "is_in_vain": row["state"] == "NOTIFIED" and reason == Reason.TIMEOUT_EXPIRED.value,
            "check": row["next_check_time"],
        }

    def queue(self, query: QueryParams) -> Page:
        """Returns the page of one queue: why a reader is or is not started now, the timeline, and all that is known."""
        name, period = query.get("name", ""), query.get("period", _DEFAULT_PERIOD)
        period = period if period in _PERIODS_S else _DEFAULT_PERIOD
        if not name:
            return Page("Queue", [Part("answer", "error.html", {"error": "No queue is named."})], status=404)
        answer = self._kept.get(f"facts {name}", partial(self._facts, name))
        line = self._kept.get(f"timeline {period} {name}", partial(self._timeline, name, _PERIODS_S[period]))
        if answer is None or line is None:
            return Page(name, [Part("answer", "looking.html")])
        facts = answer.found
        if not facts.is_known:
            return Page(name, [Part("answer", "error.html", {"error": f"There is no queue {name!r}."})], status=404)
        shown = {
            "line": line.found,
            "periods": list(_PERIODS_S),
            "period": period,
            "name": name,
            "most_readers": _SHOWN_READERS,
        }
        parts = [
            Part("answer", "answer.html", _answer(facts)),
            Part("warnings", "warnings.html", {"warnings": answer.warnings}),
            Part("timeline", "timeline.html", {"picture": picture(line.found), **shown}),
        ]
        if facts.group is not None:
            found = self._kept.get(f"map {facts.group.name}", partial(self._maps.of, facts.group.name))
            backlog = None if found is None or found.found.finding is None else found.found.finding.backlog
            facts = replace(facts, group=replace(facts.group, backlog=backlog))
            if found is not None:
                parts.append(Part("group", "group.html", {"map": found.found}))
        parts.append(Part("facts", "facts.html", {"sections": queue_show.sections(facts)}))
        return Page(name, parts)

    def _facts(self, name: str) -> queue_facts.QueueFacts:
        facts = queue_facts.find(self._view.cluster, self._view.topics, name)
        if facts.is_known:
            queue_facts.look_around(self._view.cluster, self._view.topics, facts, as_json=True)
        return facts

    def _timeline(self, name: str, period_s: int) -> Timeline:
        until_ms = wall_clock.now_ms()
        from_ms = until_ms - period_s * 1000
        history = queue_history.read(self._view.cluster, self._view.topics, name, from_ms)
        return timeline(history, from_ms, until_ms)

    def activity(self, query: QueryParams) -> Page:
        """Returns the page of the last activations, newest first."""
        search = query.get("search", "")
        found = [each for each in self._view.activations() if search.casefold() in each.queue.casefold()]
        values = {"activations": found[:_SHOWN_ACTIVATIONS], "found": len(found)}
        return Page("Activity", [Part("activity", "activity.html", values)], "search_form.html", {"search": search})


def _answer(facts: queue_facts.QueueFacts) -> dict[str, Any]:
    """Returns what the page says first: why a reader is, or is not, started now."""
    row, since = facts.row, queue_show.since(facts)
    return {
        "state": None if row is None else state_name(row),
        "sentence": queue_show.headline_of(facts),
        "why": queue_show.explanation(facts),
        "unread": None if row is None else unread_count(row),
        "since": since,
        "written": None if row is None else row["update_time"],
        "is_anybody_waiting": row is not None and row["tasks_waiting"] > 0,
        "meaning": "" if row is None else meaning(state_name(row), is_now=facts.present.monitor and not since),
    }
