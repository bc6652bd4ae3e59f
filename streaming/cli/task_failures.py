"""The sentences of all views about failures of tasks of internal activation."""

from typing import Any

from streaming.cli.monitor_rows import needs_host, observed
from streaming.cli.present import Present
from streaming.core.activation.explanation import when
from streaming.core.activation.running_programs import LONG_MS
from streaming.core.numbers import plural
from streaming.system.ages import has_passed, instant_utc
from streaming.system.documents import document
from streaming.system.logs import printable


def failures(rows: list[dict[str, Any]], present: Present) -> list[str]:
    """Returns a line for each queue whose tasks fail."""
    return [printable(f"{row['queue']}: {problem}") for row in rows if (problem := failure(row, present)) is not None]


def failure(row: dict[str, Any], present: Present) -> str | None:
    """Returns the sentence about failures of the tasks of a row of the monitors view; None if no task fails."""
    failures = row.get("task_failures", 0)
    if not failures:
        return _reads_nothing(row, present)
    has = "has" if present.monitor else "had"
    since = f" since {instant_utc(row['failing_since'])}" if row.get("failing_since") else ""
    times = "failed" if failures == 1 else f"failed {failures} times in a row"
    procedure = f"procedure {row.get('failing_procedure') or 'without a name'} {has} {times}{since}"
    why, again = row.get("task_failure"), _again(row.get("next_start_time"), present)
    if present.host is not False:
        return f"{procedure}{again}{f': {why}' if why else ''}"
    # The host that has reported the reason does not run any more.
    nobody = "The host that runs is stopping" if present.stopping else "No host runs"
    return f"{procedure}{again}. {nobody}{f'; the last time: {why}' if why else ''}"


def _again(next_start: str | None, present: Present) -> str:
    if not next_start:
        return ""
    at = when(is_watched=present.monitor, instant=instant_utc(next_start), is_due=has_passed(next_start))
    return f", and is tried again {at}"


def _reads_nothing(row: dict[str, Any], present: Present) -> str | None:
    """Returns the question about tasks that run for long while the monitor has no report of a RECEIVE."""
    running, since = row["tasks_running"], row["last_activated_time"]
    is_silent = row["state"] == "NOTIFIED" and needs_host(row) and running > 0 and observed(row) is None
    if not is_silent or since is None or not present.monitor or present.is_without_host:
        return None
    if not has_passed(since, LONG_MS):
        return None
    runs, they = ("runs", "does it") if running == 1 else ("run", "do they")
    activation = f"activation {row['activation_sequence']} at {instant_utc(since)}"
    return (
        f"{plural(running, 'task')} {runs}, and nobody has called RECEIVE since {activation}: {they} report, or {they} "
        f"hang? See {document('guide/reporting.md')}"
    )
