"""The output of `queue show`: for people, and as JSON."""

from collections.abc import Iterable
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from streaming.cli.group_facts import NOT_SEEN
from streaming.cli.monitor_rows import UNCERTAIN, is_leased, next_check_time, observed, state_name, unread_count
from streaming.cli.present import Present
from streaming.cli.queue_facts import SESSIONS_MS, QueueFacts
from streaming.cli.task_failures import failure
from streaming.core.activation.definition import QueueDefinition
from streaming.core.activation.explanation import Situation, why
from streaming.core.activation.headline import headline, unwatched
from streaming.core.activation.queue_monitor import Hindrance, State
from streaming.core.activation.sessions import Session
from streaming.core.activation.settings import DEFAULT_NOTIFICATION
from streaming.core.numbers import plural
from streaming.core.times import FOREVER_MS
from streaming.system import durations, hints
from streaming.system.ages import has_passed, instant_utc
from streaming.system.logs import printable
from streaming.system.screens import Fields, Sentence


def explanation(facts: QueueFacts) -> list[str]:
    """Returns the reasons for the state of the queue's monitor, or why no observer sees the queue."""
    now = _situation(facts)
    if now is None:
        return [facts.blind] if facts.blind else []
    return why(now)


def headline_of(facts: QueueFacts) -> str:
    """Returns the sentence that says why a reader is, or is not, started now."""
    now, row = _situation(facts), facts.row
    if now is None or row is None:
        return unwatched(
            "the monitor has read no record of this queue" if facts.present.monitor else facts.present.gone
        )
    return headline(now, _time(row.get("quiet_since")), _time(row.get("quiet_until")))


def _situation(facts: QueueFacts) -> Situation | None:
    row = facts.row
    if row is None:
        return None
    check = next_check_time(row)
    return Situation(
        state=State[row["state"] or "ABSENT"],
        is_on=row["is_receive_enabled"],
        unread=row["unread_messages"],
        waiting=row["tasks_waiting"],
        sequence=row["activation_sequence"],
        activated_at=_time(row["last_activated_time"]),
        empty_at=_time(row["last_empty_rowset_time"]),
        next_check_at=_time(check),
        is_leased=is_leased(row),
        tasks_running=row["tasks_running"],
        max_queue_readers=row["max_queue_readers"],
        failures=row.get("task_failures", 0),
        next_start_at=_time(row.get("next_start_time")),
        has_notifications=bool(_notifications(facts)),
        is_topic=facts.partitions is not None,
        is_watched=facts.present.monitor,
        gone=facts.present.gone,
        reader=facts.reader,
        written_at=_time(facts.written_at),
        off_by=facts.off_by,
        is_check_due=has_passed(check),
        is_start_due=has_passed(row.get("next_start_time")),
        switch_on=None if facts.is_on_soon else hints.command("queue", "alter", facts.name, "--status", "ON"),
        hindrance=next((each for each in Hindrance if each.value == row.get("hindrance")), None),
        waiting_where=row.get("tasks_waiting_where", 0),
        observed=observed(row, facts.present, facts.blind, facts.members_now, facts.unread_now),
    )


def as_json(facts: QueueFacts) -> dict[str, Any]:
    """Returns all known facts as plain values."""
    return {
        "queue": facts.name,
        "partitions": facts.partitions,
        "group": None if facts.group is None else facts.group.as_json(),
        "definition": None if facts.definition is None else _definition(facts.definition, facts.is_on),
        "monitor": facts.row,
        "headline": headline_of(facts),
        "why": explanation(facts),
        "sessions": [
            {"session_id": name, "waits": session.wait is not None, "open_transactions": session.transactions}
            for name, session in facts.sessions.items()
        ],
        "tasks": facts.tasks,
        "activators": [each.as_json() for each in facts.activators],
        "last_activations": [msgspec.to_builtins(each) for each in facts.activations],
    }


def _definition(definition: QueueDefinition, is_on: bool) -> dict[str, Any]:
    clause, timeout_ms = definition.activation, definition.external_activation_timeout_ms
    return {
        "is_automatic": definition.is_automatic,
        "status": _on_off(is_on),
        "poison_message_handling": _on_off(definition.handles_poison),
        "external_activation_timeout": None if timeout_ms is None else _duration(timeout_ms),
        "activation": None
        if clause is None
        else {
            "status": _on_off(clause.is_on),
            "procedure_name": clause.procedure_name,
            "max_queue_readers": clause.max_queue_readers,
            "execute_as": clause.execute_as,
        },
        "notifications": definition.notifications,
    }


def show(facts: QueueFacts) -> RenderableType:
    """Returns all known facts for people."""
    fields = Fields((name, Text(printable_lines(lines or ["none"]))) for name, lines in sections(facts).items())
    return Group(Sentence(facts.name, "bold"), fields)


def sections(facts: QueueFacts) -> dict[str, list[str]]:
    """Returns all known facts as lines, by heading."""
    return {
        "state": _state(facts),
        **({} if facts.group is None else {"group": facts.group.lines(), "topics": facts.group.topic_lines()}),
        "activator": _activator_lines(facts),
        **_of_queues(facts),
        "last notified": _last_notified(facts),
    }


def _activator_lines(facts: QueueFacts) -> list[str]:
    is_off = facts.row is not None and not facts.row["is_receive_enabled"]
    return [line for each in facts.activators for line in each.lines(is_off=is_off)] or [facts.no_activator or "none"]


def _last_notified(facts: QueueFacts) -> list[str]:
    found = {each.sequence: each for each in facts.activations}.values()
    row = facts.row
    if not found and row is not None and row["activation_sequence"] > 0 and not _notifications(facts):
        at = _time(row["last_activated_time"])
        last = "" if at is None else f". A task was last requested at {at}"
        # A task that fails is requested again without another activation.
        return [f"none: it has no event notification. The last sequence is {row['activation_sequence']:,}{last}"]
    return [
        f"#{one.sequence}  {_time(one.post_time)}  {one.reason or one.event_type}, {one.unread_messages} unread"
        for one in found
    ]


def _of_queues(facts: QueueFacts) -> dict[str, list[str]]:
    """Returns the sections about a queue itself. For a queue of a consumer group, leaves out sections without news."""
    sections = {
        "topic": [_topic(facts)],
        "definition": _definition_lines(facts.definition, facts.is_on),
        "notifications": _notification_lines(facts),
        "procedure": _procedure_lines(facts),
        "sessions": _session_lines(facts),
        "tasks": [_task(row, facts.present) for row in facts.tasks],
    }
    if facts.group is None:
        return sections
    says_nothing = {"topic"} if facts.definition is not None else {"topic", "definition", "notifications"}
    return {name: lines for name, lines in sections.items() if lines and name not in says_nothing}


def printable_lines(lines: Iterable[str]) -> str:
    """Joins lines that contain texts from records, and escapes characters that a terminal would obey."""
    return "\n".join(map(printable, lines))


def _state(facts: QueueFacts) -> list[str]:
    row = facts.row
    if row is None and facts.present.monitor:
        reported = "of this queue" if facts.group is None else "of this consumer group: no observer has reported it"
        return [f"unknown to the monitor, which has read no record {reported}", *explanation(facts)]
    if row is None:
        nobody = f"{facts.present.gone}, and the last one, if there was one, has read no record of this queue."
        return [nobody, *explanation(facts)]
    unread = row["unread_messages"]
    before = "not watched any more; before: " if facts.is_unwatched else ""
    waiting = "waiting" if facts.present.monitor and not before else "that waited"
    counts = f"{unread_count(row)} unread{since(facts)}, readers {waiting}: {row['tasks_waiting']}"
    early = (
        [f"Readers have received {-unread:,} more than was reported as arrived: does each sender report?"]
        if unread < 0
        else []
    )
    uncertain = [f"{UNCERTAIN[0].upper()}{UNCERTAIN[1:]}."] if row.get("is_count_uncertain") else []
    return [f"{before}{state_name(row)}, {counts}", *explanation(facts), *early, *uncertain]


def since(facts: QueueFacts) -> str:
    """Returns a remark that the count of unread messages is old; empty if the count is current.

    The view also shows the present backlog of the group, which may differ from the observer's last count.
    """
    now = _situation(facts)
    is_old = now is not None and now.observed is not None and not now.observed.is_count_of_now(now.unread)
    return " when an observer last reported it" if is_old else ""


def _topic(facts: QueueFacts) -> str:
    if facts.partitions is None:
        return f"{NOT_SEEN}; none is needed if the messages are stored elsewhere"
    partitions, readers = plural(facts.partitions, "partition"), plural(facts.partitions, "reader")
    return f"{partitions}: at most {readers} can receive at a time"


def _definition_lines(definition: QueueDefinition | None, is_on: bool) -> list[str]:
    if definition is None:
        return ["no command has defined this queue: the defaults apply"]
    timeout_ms = definition.external_activation_timeout_ms
    return [
        f"STATUS {_on_off(is_on)}, POISON_MESSAGE_HANDLING {_on_off(definition.handles_poison)}",
        f"external activation time-out {'as set for the monitor' if timeout_ms is None else _duration(timeout_ms)}",
    ]


def _notifications(facts: QueueFacts) -> dict[str, str | None]:
    return {DEFAULT_NOTIFICATION: None} if facts.definition is None else facts.definition.notifications


def _notification_lines(facts: QueueFacts) -> list[str]:
    usual = {DEFAULT_NOTIFICATION: f"{DEFAULT_NOTIFICATION}, which a queue has unless a command says otherwise"}
    return [
        usual.get(name, name) if service is None else f"{name} to service {service}"
        for name, service in _notifications(facts).items()
    ]


def _procedure_lines(facts: QueueFacts) -> list[str]:
    clause = facts.definition.activation if facts.definition is not None else None
    if clause is None:
        return []
    lines = [
        f"{clause.procedure_name or 'no name'}, {_on_off(clause.is_on)}, at most {clause.max_queue_readers} at a time"
    ]
    problem = None if facts.row is None else failure(facts.row, facts.present)
    return lines if problem is None else [*lines, problem]


def _session_lines(facts: QueueFacts) -> list[str]:
    """Returns the sessions. If the monitor's row counts others, says of which time both are."""
    lines = [_session(name, session) for name, session in facts.sessions.items()]
    waiting = sum(session.wait is not None for session in facts.sessions.values())
    if facts.row is None or waiting == facts.row["tasks_waiting"]:
        return lines
    reports = f"by the reports of the last {durations.of(SESSIONS_MS)} until now"
    return [*(lines or ["none"]), f"({reports}; the state above is that of the monitor's last batch)"]


def _session(name: str, session: Session) -> str:
    parts = ["waits in RECEIVE"] if session.wait is not None else []
    parts += [
        f"has received {plural(messages, 'message')} in transaction {name}"
        for name, messages in session.transactions.items()
    ]
    return f"{name}  {', '.join(parts)}"


def _task(row: dict[str, Any], present: Present) -> str:
    if row["is_confirmed"]:
        how = f"{'runs' if present.monitor else 'ran'} on {row['host'] or 'a host without a name'}"
        how += ", which is stopping" if row["host"] in present.stopping else ""
    elif present.host is None:
        how = f"not taken by a host yet; does `{hints.command('host', '--config', 'FILE')}` run?"
    else:
        nobody = f"none runs{' that would take it' if present.stopping else ''}"
        how = "not taken by a host yet" if present.host else f"not taken by a host: {nobody}"
    if not present.monitor:
        how = f"{how}, when a monitor last wrote"
    return f"{row['task_id'][:8]}  for #{row['sequence']}  since {_time(row['start_time'])}  {how}"


def _time(iso_time: str | None) -> str | None:
    return None if iso_time is None else instant_utc(iso_time)


def _on_off(is_on: bool) -> str:
    return "ON" if is_on else "OFF"


def _duration(duration_ms: int) -> str:
    return "none" if duration_ms == FOREVER_MS else str(durations.of(duration_ms))
