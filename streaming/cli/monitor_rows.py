"""Describes rows of the monitors view, for all commands."""

from collections.abc import Mapping, Sequence
from typing import Any

from streaming.cli.present import NOBODY_MISSING, Present
from streaming.core.activation.explanation import Observed
from streaming.core.activation.queue_monitor import Hindrance
from streaming.core.times import iso_time
from streaming.system import hints
from streaming.system.ages import has_passed, instant_and_age

# The most queues that a sentence names.
EXAMPLES = 3
UNCERTAIN = (
    "reports were deleted by Kafka before the monitor has read them, so this count is uncertain until a reader finds "
    "the queue empty"
)
# If one of these reasons applies, no instant lets the monitor decide differently, except the end of a lease.
_LASTING = {each.value for each in (Hindrance.NOTHING_UNREAD, Hindrance.NOT_WANTED, Hindrance.READER_WAITS)}


def observed(
    row: Mapping[str, Any],
    present: Present = NOBODY_MISSING,
    blind: str = "",
    members_now: int | None = None,
    unread_now: int | None = None,
) -> Observed | None:
    """Returns the observer's facts in a row of the monitors view; None if the queue's readers report.

    Args:
        row: The row.
        present: The programs that run.
        blind: The sentence about why no observer can see the group's messages.
        members_now: The present number of the group's members; None if it is not known.
        unread_now: The present backlog of the group; None if it is not known.
    """
    if (members := row.get("members")) is None:
        return None
    since, as_of_ms = row.get("observer_silent_since"), present.as_of_ms
    silent = instant_and_age(since) if since else None
    as_of = None if as_of_ms is None else instant_and_age(iso_time(as_of_ms))
    if row.get("queue") in present.unwatched:
        blind = without_entry([row])
    return Observed(members, row.get("one_more"), silent, present.observer, blind, as_of, members_now, unread_now)


def next_check_time(row: Mapping[str, Any]) -> str | None:
    """Returns when the monitor checks a queue next without a report; None for never, and if the instant is unknown.

    An instant in a row may be the end of a lease. Reports postpone this end, but the monitor writes no row for that.
    """
    hindrance = row.get("hindrance")
    if not (has_passed(row["next_check_time"]) and (is_leased(row) or hindrance in _LASTING)):
        return row["next_check_time"]  # type: ignore[no-any-return]
    return row.get("quiet_until") if hindrance == Hindrance.QUIET_WINDOW.value else None


def is_leased(row: Mapping[str, Any]) -> bool:
    """Returns whether a queue has tasks or readers whose leases reports postpone."""
    return bool(row["tasks_running"] or row["tasks_waiting"])


def needs_host(row: Mapping[str, Any]) -> bool:
    """Returns whether the tasks of a queue need a host, by the queue's row of the monitors view."""
    return row["max_queue_readers"] is not None and bool(row.get("is_activation_enabled", True))


def queue_names(queues: Sequence[str]) -> str:
    """Returns the names of queues for a sentence. If there are many, returns their number and the first names."""
    if len(queues) == 1:
        return f"queue {queues[0]}"
    named, more = ", ".join(queues[:EXAMPLES]), len(queues) - EXAMPLES
    return f"{len(queues):,} queues: {named}{f' and {more:,} more' if more > 0 else ''}"


def without_entry(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the sentence about the rows of queues of consumer groups that no entry names any more."""
    first = min((since for row in rows if (since := row.get("observer_silent_since"))), default=None)
    its_group, it, which = "its consumer group", "it", ""
    if len(rows) > 1:
        its_group, it, which = "their consumer groups", "them", " of the first one"
    # An observer reports only groups with members or messages, so it may have watched a group after its last report.
    last = "" if first is None else f". The last report{which} was at {instant_and_age(first)}"
    return (
        f"no entry of the activator's file names {its_group}, so nobody watches {it}{last}. New messages are not "
        f"counted, and no reader is requested: {or_drop([str(row['queue']) for row in rows])}"
    )


def or_drop(queues: Sequence[str]) -> str:
    """Returns the advice about queues of consumer groups that no observer watches."""
    one = queues[0] if len(queues) == 1 else "QUEUE"
    return f"add an entry, or drop what is not needed any more: `{hints.command('queue', 'drop', one)}`"


def state_name(row: dict[str, Any]) -> str:
    """Returns the state in a row of the monitors view; for a queue without a monitor, the reason for that."""
    return str(row["state"] or ("no monitor" if row["is_receive_enabled"] else "queue OFF"))


def unread_messages(row: dict[str, Any]) -> str:
    """Returns the count of unread messages with the noun."""
    return f"{unread_count(row)} unread message{'s' if row['unread_messages'] != 1 else ''}"


def unread_count(row: dict[str, Any]) -> str:
    """Returns the count of unread messages of a row, with a question mark if the count is uncertain."""
    # The count is below zero if the report of a RECEIVE has come before the report of the arrival.
    return f"{max(0, row['unread_messages']):,}{'?' if row.get('is_count_uncertain') else ''}"
