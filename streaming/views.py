"""What `watch` and `queues` show: notifications as they come, and the monitors view."""

import json
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from streaming.activations import Activation, decode
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


def notification_line(activation: Activation) -> Text:
    """One line for a record of queue-activations."""
    if activation.event_type == "BROKER_QUEUE_DISABLED":
        why = Text("BROKER_QUEUE_DISABLED after too many rollbacks", "bold red")
    else:
        why = Text(activation.reason or "", _REASON_STYLES.get(activation.reason or "", ""))
    line = Text.assemble(
        (clock(activation.post_time), "dim"),
        "  ",
        (f"{activation.queue:<24}", "bold"),
        f" #{activation.sequence:<5}",
        f" unread {activation.unread_messages:<7} waiting {activation.tasks_waiting:<4} ",
        why,
    )
    if activation.notification not in (None, "default"):
        line.append(f"  to {activation.notification}", "cyan")
    return line


def watch(follower: TopicFollower, console: Console, as_json: bool) -> None:
    """Prints notifications as they come, until interrupted."""
    for message in follower.forever():
        activation = decode(message)
        if activation is None:
            continue
        if as_json:
            is_json = (message.value() or b"").startswith(b"{")
            text = message.value() if is_json else msgspec.json.encode(activation)
            console.out((text or b"").decode(), highlight=False)
        else:
            # A line for eyes is never wrapped: a long name pushes the end out of the window instead.
            console.print(notification_line(activation), soft_wrap=True)


def read_monitors(follower: TopicFollower) -> list[dict[str, Any]]:
    """The monitors view as it stands: one row per queue, with `queue` as it is named, in order of names."""
    rows = _read_rows(follower)
    return [{"queue": name, **rows[name]} for name in sorted(rows)]


def read_tasks(follower: TopicFollower) -> list[dict[str, Any]]:
    """The running tasks as they stand, in order of queues and of their start."""
    return sorted(_read_rows(follower).values(), key=lambda row: (row["queue"], row["start_time"]))


def _read_rows(follower: TopicFollower) -> dict[str, dict[str, Any]]:
    """The last value of each key of a compacted topic."""
    rows: dict[str, dict[str, Any]] = {}
    for message in follower.to_end():
        key, value = message.key(), message.value()
        if key is None:
            continue
        if value is None:
            rows.pop(key.decode(), None)
        else:
            rows[key.decode()] = json.loads(value)
    return rows


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
        table.add_row(
            row["queue"],
            Text(state, _STATE_STYLES.get(state, "red")),
            f"{row['unread_messages']:,}",
            str(row["tasks_waiting"]),
            *([_tasks_cell(row)] if has_tasks else []),
            f"{row['activation_sequence']:,}",
            clock(row["last_activated_time"])[:8],
            clock(row["next_check_time"])[:8],
        )
    return table


def _tasks_cell(row: dict[str, Any]) -> Text:
    """How many tasks run of how many that may; whether the procedure failed, or the limit holds back a further one."""
    if row["max_queue_readers"] is None:
        return Text("-")
    running, most = row["tasks_running"], row["max_queue_readers"]
    if row["is_procedure_failed"]:
        return Text(f"{running}/{most} failed", "bold red")
    return Text(f"{running}/{most}", "yellow" if running >= most else "")


def tasks_table(rows: list[dict[str, Any]]) -> Table:
    """The running tasks for eyes; `tasks --json` has all of it."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("queue", overflow="fold", min_width=12)
    table.add_column("procedure", overflow="fold")
    table.add_column("for #", justify="right", no_wrap=True)
    for name in ("since UTC", "host", "task"):
        table.add_column(name, no_wrap=True)
    for row in rows:
        table.add_row(
            row["queue"],
            row["procedure_name"] or "-",
            str(row["sequence"] or "-"),
            clock(row["start_time"])[:8],
            (row["host"] or "-") if row["is_confirmed"] else Text("starting", "dim"),
            row["task_id"][:8],
        )
    return table
