"""The output of `queues`: a table of the queue monitors, the meanings of its words, and the faults."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Group
from rich.text import Text

from streaming.cli.monitor_rows import (
    UNCERTAIN,
    next_check_time,
    observed,
    or_drop,
    queue_names,
    state_name,
    unread_count,
    unread_messages,
)
from streaming.cli.present import NOBODY_MISSING, Present
from streaming.cli.tables import word
from streaming.cli.task_failures import failures
from streaming.core.activation.explanation import Observed
from streaming.core.numbers import plural
from streaming.system import ages, hints
from streaming.system.ages import instant, instant_utc
from streaming.system.logs import printable
from streaming.system.screens import Column, RecordTable, Sentence, cell

# The name of the state of a queue whose consumer group no entry names any more.
_UNWATCHED = "not watched"
_STATE_STYLES = {"INACTIVE": "dim", "NOTIFIED": "bold yellow", "RECEIVES_OCCURRING": "green", _UNWATCHED: "yellow"}
# The meanings of the states, for legends.
STATES = {
    "INACTIVE": "no reported message is unread",
    "NOTIFIED": "a reader was requested, and has not come yet",
    "RECEIVES_OCCURRING": "there are messages; one more reader is requested when it would have work",
    "queue OFF": "no notification is written, and no task is started",
    "no monitor": "no notification can be written, and no task can be started",
    _UNWATCHED: "whether its consumer group has messages or readers is unknown",
}
# Their meanings if no monitor runs.
_PAST = {
    "INACTIVE": "no reported message was unread",
    "NOTIFIED": "a reader was requested, and had not come yet",
    "RECEIVES_OCCURRING": "there were messages",
}
_DUE = "due: the instant of the next check has passed, and the monitor checks with one of its next batches"


def view(rows: list[dict[str, Any]], troubles: Iterable[str] = (), present: Present = NOBODY_MISSING) -> Group:
    """Returns the monitors view for people, with the meanings of its states and the failures of tasks.

    Args:
        rows: The rows.
        troubles: The sentences about faults of activators.
        present: The programs that run.
    """
    states = {shown_state(row, present) for row in rows}
    return Group(
        table(rows, present),
        Text(),
        *(Sentence(f"{state}: {_meaning(state, rows, present)}", "dim") for state in STATES if state in states),
        *([Sentence(_DUE, "dim")] if any(_next_check(row, present) == "due" for row in rows) else []),
        *([Sentence(f"?: {UNCERTAIN}", "yellow")] if any(row.get("is_count_uncertain") for row in rows) else []),
        *([Sentence(_one_more(present), "dim")] if any(map(observed, rows)) else []),
        *(Sentence(line, "red") for line in (*failures(rows, present), *_unheard(rows, present), *troubles)),
        Sentence(f"`{hints.command('queue', 'show', 'QUEUE')}` says why a queue is in its state", "dim"),
    )


def meaning(state: str, *, is_now: bool) -> str:
    """Returns the meaning of a state.

    Args:
        state: The name of the state.
        is_now: Whether the state is current. Otherwise the program that wrote the state does not run.
    """
    return (STATES if is_now else STATES | _PAST).get(state, "")


def _meaning(state: str, rows: list[dict[str, Any]], present: Present) -> str:
    """Returns the meaning of a state for the rows with that state. Some of the rows may be old."""
    are_late = {is_late(row, present) for row in rows if shown_state(row, present) == state}
    now, past = (meaning(state, is_now=present.monitor and is_now) for is_now in (True, False))
    if are_late == {True, False} and now != past:
        return f"{now}; of a consumer group whose members are unknown, {past}"
    return past if are_late == {True} else now


def is_late(row: Mapping[str, Any], present: Present) -> bool:
    """Returns whether the observer's report in a row may be out of date."""
    seen = observed(row, present)
    return seen is not None and seen.is_late(row["unread_messages"])


def _one_more(present: Present) -> str:
    """Returns the meaning of the column `one more`."""
    what = "one more: of a queue whose readers report nothing, whether one more"
    if not present.monitor or present.observer is False:
        return f"{what} would have had work, as an observer last saw their consumer group"
    return f"{what} would have work, as an observer sees their consumer group; one is requested only while it says yes"


def _unheard(rows: list[dict[str, Any]], present: Present) -> Iterator[str]:
    """Yields a line about queues that an observer should have reported. If no observer runs, `look` has said so."""
    missing = [
        row["queue"]
        for row in rows
        if row["queue"] not in present.unwatched
        and (seen := observed(row)) is not None
        and seen.is_missing(row["unread_messages"])
    ]
    observer_runs = present.observer
    if missing and observer_runs is not False:
        heard = "nothing has been heard of an observer since its last report, so no reader is requested."
        if observer_runs:
            heard = (
                "an observer runs, but has said nothing of it for longer than the quiet window, so no reader is "
                f"requested. Does an entry of its file name the consumer group? Otherwise {or_drop(missing)}"
            )
        yield printable(f"{queue_names(missing)}: {heard}")


def table(rows: list[dict[str, Any]], present: Present = NOBODY_MISSING) -> RecordTable:
    """Returns the monitors view as a table; `queues --json` has all fields."""
    has_tasks = any(row["max_queue_readers"] is not None for row in rows)
    has_groups = any(map(observed, rows))
    counts = (
        "unread\nmessages",
        "readers\nwaiting" if present.monitor else "readers\nwaited",
        *(["group's\nmembers", "one\nmore"] if has_groups else []),
        # The count includes tasks that no host has taken.
        *([f"tasks\n{_tasks_are(present)}"] if has_tasks else []),
        "sequence",
    )
    columns_of_rows = [
        *map(Column, ("queue", "state")),
        *(Column(name, is_number=True) for name in counts),
        *(Column(name, is_text=True) for name in ("activated\nat (UTC)", "next check\n(UTC)")),
    ]
    cells = [
        [
            cell(row["queue"]),
            _state_cell(row, present),
            _unread_cell(row, present),
            Text(str(row["tasks_waiting"])),
            *(_group_cells(observed(row, present), row["unread_messages"]) if has_groups else []),
            *([_tasks_cell(row)] if has_tasks else []),
            Text(f"{row['activation_sequence']:,}"),
            cell(instant(row["last_activated_time"])),
            cell(_next_check(row, present)),
        ]
        for row in rows
    ]
    return RecordTable(columns_of_rows, cells, narrower=_narrow_table(rows, present))


def _narrow_table(rows: list[dict[str, Any]], present: Present) -> RecordTable:
    """Returns the table with all readers in one column, and the times below each row.

    If a long name makes this table too wide, all values are below the names.
    """
    columns_of_rows = [
        *map(Column, ("queue", "state")),
        Column("unread\nmessages", is_number=True),
        Column("readers", is_text=True),
        Column("times", is_text=True, is_below=True),
    ]
    cells, lists = [], []
    for row in rows:
        name, state, readers = cell(row["queue"]), _state_cell(row, present), _readers_cell(row, present)
        times = cell(_times(row, present), "dim")
        cells.append([name, state, _unread_cell(row, present), readers, times])
        unread = "" if row["queue"] in present.unwatched else f", {unread_messages(row)}"
        words = Text.assemble(state, f"{unread}; readers: ", readers)
        lists.append([name, Text.assemble(words, "; ", times) if times else words])
    of_names = [Column("queue"), Column("state", is_text=True, is_below=True)]
    return RecordTable(columns_of_rows, cells, gap=2, narrower=RecordTable(of_names, lists))


def shown_state(row: dict[str, Any], present: Present) -> str:
    """Returns the name of the state. The row of a queue that is no longer watched has an outdated state."""
    return _UNWATCHED if row["queue"] in present.unwatched else state_name(row)


def _state_cell(row: dict[str, Any], present: Present) -> Text:
    state = shown_state(row, present)
    return cell(state, _STATE_STYLES.get(state, "red"))


def _unread_cell(row: dict[str, Any], present: Present) -> Text:
    return Text(shown_unread(row, present), "yellow" if row["queue"] in present.unwatched else "")


def shown_unread(row: dict[str, Any], present: Present) -> str:
    """Returns the count of unread messages as the view shows it."""
    return "unknown" if row["queue"] in present.unwatched else unread_count(row)


def _readers_cell(row: dict[str, Any], present: Present) -> Text:
    """Returns the numbers of waiting readers, of members of a consumer group, and of tasks."""
    seen = observed(row, present)
    parts = []
    if seen is None or row["tasks_waiting"]:
        parts.append(Text(f"{row['tasks_waiting']} {'waiting' if present.monitor else 'waited'}"))
    if seen is not None:
        members, answer = _group_cells(seen, row["unread_messages"])
        counted = Text(plural(seen.members, "member"))
        # So short that the answer has room beside it and a usual name.
        named = Text.assemble("group ", members) if seen.is_late(row["unread_messages"]) else counted
        parts.append(Text.assemble(named, ", one more: ", answer))
    if row["max_queue_readers"] is not None:
        parts.append(Text.assemble(f"tasks {'requested ' if present.is_without_host else ''}", _tasks_cell(row)))
    return Text(", ").join(parts)


def _times(row: dict[str, Any], present: Present) -> str:
    """Returns the last sequence, the time of the last activation, and the time of the next check."""
    sequence, at = row["activation_sequence"], row["last_activated_time"]
    # A task that fails is requested again without another activation.
    last = "last activated" if row["max_queue_readers"] is None else "last request"
    parts = [f"sequence {sequence:,}{f', {last} at {instant_utc(at)}' if at else ''}"] if sequence else []
    if (check := _next_check(row, present)) != "-":
        parts.append("next check due" if check == "due" else f"next check at {check} UTC")
    return "; ".join(parts)


def _tasks_are(present: Present) -> str:
    """Returns the word for tasks that a monitor counts as running."""
    if present.is_without_host:
        return "requested"
    return "running" if present.monitor else "ran"


def _next_check(row: Mapping[str, Any], present: Present) -> str:
    """Returns the time at which the monitor checks a queue next; `-` without a monitor or without a known time."""
    at = next_check_time(row) if present.monitor else None
    return "due" if ages.has_passed(at) else instant(at)


def _group_cells(seen: Observed | None, unread: int) -> list[Text]:
    """Returns a consumer group's number of members, and whether one more reader would have work, as far as known."""
    if seen is None:
        return [Text("-"), Text("-")]
    answer, is_old = seen.answer(unread), seen.is_late(unread)
    style = "yellow" if is_old else ""
    members = Text("unknown", style) if is_old else Text(f"{seen.members:,}")
    return [members, Text("unknown" if answer is None else word(answer), style)]


def _tasks_cell(row: dict[str, Any]) -> Text:
    """Returns the numbers of running and of allowed tasks; a failure is red, and a reached limit yellow."""
    if row["max_queue_readers"] is None:
        return Text("-")
    running, most = row["tasks_running"], row["max_queue_readers"]
    if row.get("task_failures"):
        return Text(f"{running}/{most} failed", "bold red")
    return Text(f"{running}/{most}", "yellow" if running >= most else "")
