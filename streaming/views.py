"""What `watch` and `queues` show: notifications as they come, and the monitors view."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from streaming.follow import TopicFollower

_STATE_STYLES = {"INACTIVE": "dim", "NOTIFIED": "bold yellow", "RECEIVES_OCCURRING": "green"}
_REASON_STYLES = {
    "MESSAGE_ARRIVED_ON_EMPTY_QUEUE": "green",
    "MESSAGES_ACCUMULATING": "yellow",
    "TIMEOUT_EXPIRED": "bold red",
}


def clock(iso_time: str | None) -> str:
    """The time of day of a record's time, in UTC as it stands there."""
    return iso_time[11:23] if iso_time else "-"


def notification_line(record: dict[str, Any]) -> Text:
    """One line for a record of queue-activations."""
    if record["EventType"] == "BROKER_QUEUE_DISABLED":
        why = Text("BROKER_QUEUE_DISABLED after too many rollbacks", "bold red")
    else:
        why = Text(record["reason"], _REASON_STYLES.get(record["reason"], ""))
    line = Text.assemble(
        (clock(record["PostTime"]), "dim"),
        "  ",
        (f"{record['queue']:<24}", "bold"),
        f" #{record['sequence']:<5}",
        f" unread {record['unread_messages']:<7} waiting {record['tasks_waiting']:<4} ",
        why,
    )
    if record["notification"] not in (None, "default"):
        line.append(f"  to {record['notification']}", "cyan")
    return line


def watch(follower: TopicFollower, console: Console, as_json: bool) -> None:
    """Prints notifications as they come, until interrupted."""
    for message in follower.forever():
        value = message.value()
        if value is None:
            continue
        record = json.loads(value)
        # A line for eyes is never wrapped: a long name pushes the end out of the window instead.
        console.out(value.decode(), highlight=False) if as_json else console.print(
            notification_line(record), soft_wrap=True
        )


def read_monitors(follower: TopicFollower) -> list[dict[str, Any]]:
    """The monitors view as it stands: one row per queue, with `queue` as it is named, in order of names."""
    rows: dict[str, dict[str, Any]] = {}
    for message in follower.to_end():
        key, value = message.key(), message.value()
        if key is None:
            continue
        if value is None:
            rows.pop(key.decode(), None)
        else:
            rows[key.decode()] = json.loads(value)
    return [{"queue": name, **rows[name]} for name in sorted(rows)]


def monitors_table(rows: list[dict[str, Any]]) -> Table:
    """The monitors view for eyes, 80 columns wide for short names; `queues --json` has all of it."""
    has_tasks = any(row["max_queue_readers"] is not None for row in rows)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("queue", overflow="fold", min_width=12)
    table.add_column("state", no_wrap=True)
    for name in ("unread", "waiting", *(["tasks"] if has_tasks else []), "activated"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("last UTC", "next check"):
        table.add_column(name, no_wrap=True)
    for row in rows:
        state = row["state"] or ("no monitor" if row["is_receive_enabled"] else "queue OFF")
        tasks = f"{row['tasks_running']}/{row['max_queue_readers']}" if row["max_queue_readers"] is not None else "-"
        table.add_row(
            row["queue"],
            Text(state, _STATE_STYLES.get(state, "red")),
            f"{row['unread_messages']:,}",
            str(row["tasks_waiting"]),
            *([tasks] if has_tasks else []),
            f"{row['activation_sequence']:,}",
            clock(row["last_activated_time"])[:8],
            clock(row["next_check_time"])[:8],
        )
    return table
