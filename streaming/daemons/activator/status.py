"""The view of `queue-activation activator status`, from the state directory alone."""

from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from streaming.core.numbers import plural
from streaming.core.times import iso_time
from streaming.daemons.activator import words
from streaming.daemons.activator.rows import Rows
from streaming.daemons.activator.settings import SEEN_INTERVAL_S
from streaming.daemons.activator.store import Store, has_state, is_locked
from streaming.errors import UserError
from streaming.system import hints
from streaming.system.ages import age, as_of, instant, instant_utc
from streaming.system.logs import printable
from streaming.system.process_identity import still_runs
from streaming.system.screens import Column, RecordTable, Sentence, cell
from streaming.wire.activator_rows import ActivatorRow

Status = dict[str, Any]
_LATEST_DECISIONS = 20
# The most queues at rest that are named.
_MAX_NAMES = 10
# After so many missed signs of life, an activator may hang.
_MISSED = 3


def read_status(directory: Path, now_ms: int) -> Status:
    """Returns the status of the activator of a state directory, running or not, as plain values.

    Raises:
        UserError: No activator has run there, or its state cannot be read.
    """
    try:
        is_there, is_running = has_state(directory), is_locked(directory)
    except OSError as error:
        raise UserError(f"The state directory {directory} cannot be read: {error.strerror}") from None
    if not is_there:
        raise UserError(
            f"No activator has run with the state directory {directory.absolute()}. Give the --state-directory of the "
            f"activator, or start one: `{hints.plain('run', 'FILE')}` with all that it needs"
        )
    with Store(directory) as store:
        about = store.about()
        rows = Rows(about, directory)
        started = {each: is_running or still_runs(each.identity, about.host) for each in store.programs()}
        pids = {each.session_id: each.identity.pid for each, runs in started.items() if runs is not False}
        queues, decisions = store.queues(), store.decisions(_LATEST_DECISIONS)
        # A decision that it has saved is a sign of life too.
        decided_ms = [*(each.at_ms for each in queues.values()), *(each.at_ms for each in decisions)]
        seen_ms = max([about.seen_ms, *decided_ms])
        # If an activator does not run, its state is that of its last sign of life.
        at_ms = now_ms if is_running else seen_ms or now_ms
        return {
            "is_running": is_running,
            "are_programs_known": None not in started.values(),
            "host": about.host or None,
            "pid": about.pid if about.config_file else None,
            "since": iso_time(about.since_ms) if about.config_file else None,
            "last_seen": iso_time(seen_ms) if seen_ms else None,
            "config_file": about.config_file,
            "config_error": about.config_error,
            "kafka_problem": about.kafka_problem if is_running else None,
            "passed_over": about.passed_over,
            "without_entry": about.without_entry,
            "queues": [_queue_status(rows.of(queue, record, pids, at_ms)) for queue, record in queues.items()],
            "decisions": [
                {"at": iso_time(each.at_ms), "queue": each.queue, "what": each.what, "why": each.why}
                for each in decisions
            ],
        }


def options_of(directory: Path) -> list[str] | None:
    """Returns the options of the activator that say where Kafka is and name its consumer group; None: not known."""
    with Store(directory) as store:
        about = store.about()
    if about.place is None:
        return None
    return [*about.place, *(["--group-id", about.group_id] if about.has_own_group else [])]


def _queue_status(row: ActivatorRow) -> Status:
    """Returns a row as in queue-activators, with the older keys `running` and `pids` besides `programs`."""
    fields: Status = msgspec.to_builtins(row)
    return {**fields, "running": len(row.programs), "pids": [program.pid for program in row.programs]}


def show(status: Status, now_ms: int, start: str = "") -> RenderableType:
    """Returns the status for people, in 80 columns.

    Args:
        status: The status.
        now_ms: The time.
        start: What to do to start the activator, as a sentence without its period.
    """
    if status["is_running"] and not status["config_file"]:
        return Text("starting", "yellow")
    parts = _age(status, now_ms)
    if status["is_running"]:
        parts.append(Sentence(f"running since {instant_utc(status['since'])} (process {status['pid']})", "green"))
    else:
        parts.insert(0, Sentence(_not_running(status, start), "yellow"))
    parts.append(Sentence(f"config {status['config_file']}"))
    if status["config_error"]:
        reason = status["config_error"].removeprefix(f"{status['config_file']}: ")
        parts.append(Sentence(f"refused, the previous config stays: {reason}", "bold red"))
    if status["kafka_problem"]:
        parts.append(Sentence(status["kafka_problem"], "bold red"))
    if status["passed_over"]:
        parts.append(Sentence(f"{status['passed_over']:,} records could not be decoded; the log names them", "yellow"))
    if status["without_entry"]:
        names = ", ".join(status["without_entry"])
        parts.append(Sentence(f"notified, but without an entry in the config: {names}", "yellow"))
    rows = [msgspec.convert(each, ActivatorRow) for each in status["queues"]]
    of_config = [row for row in rows if row.entry is not None or row.programs or row.held is not None]
    if left := [row.queue for row in rows if row not in of_config and row.queue not in status["without_entry"]]:
        names = ", ".join(left[:_MAX_NAMES]) + (", ..." if len(left) > _MAX_NAMES else "")
        parts.append(Sentence(f"at rest, and no longer in the config: {names}", "dim"))
    if not of_config:
        return Group(*parts, Text("no notification has come yet for a queue in the config"))
    return Group(*parts, Text(), _table(of_config, status, iso_time(now_ms)))


def _table(rows: list[ActivatorRow], status: Status, now: str) -> RecordTable:
    """Returns the queues as a table.

    Args:
        rows: The rows of the queues.
        status: The activator's status.
        now: The time.
    """
    columns = [
        Column("queue"),
        Column("running" if status["are_programs_known"] else "ran", is_number=True),
        Column("crashes", is_number=True),
        Column("decided (UTC)", is_text=True),
        Column("decision and reason", is_text=True, is_below=True),
    ]
    reasons, at = (_reasons, now) if status["is_running"] else (_past_reasons, status["last_seen"] or now)
    return RecordTable(columns, [[*_cells(row), reasons(row, at)] for row in rows])


def _cells(row: ActivatorRow) -> list[Text]:
    running = Text(f"{len(row.programs)}/{words.most_of(row) or '-'}")
    last = cell(instant(row.last.at if row.last else None))
    return [cell(row.queue), running, Text(str(row.crashes or "-")), last]


def _age(status: Status, now_ms: int) -> list[RenderableType]:
    """Returns how old the status is, after a warning if the activator should have saved it again."""
    if not status["last_seen"]:
        return []
    seen_ms = int(datetime.fromisoformat(status["last_seen"]).timestamp() * 1000)
    late = (
        f"its last sign of life is {age(seen_ms, now_ms)} old, and there should be one every "
        f"{SEEN_INTERVAL_S:.0f} s: look at the end of its log"
    )
    is_late = status["is_running"] and now_ms - seen_ms > _MISSED * SEEN_INTERVAL_S * 1000
    return [*([Sentence(late, "bold red")] if is_late else []), Text(as_of(seen_ms, now_ms))]


def _not_running(status: Status, start: str) -> str:
    left = [(row["queue"], pid) for row in status["queues"] for pid in row["pids"]]
    again = f". {start}" if start else ""
    if not left:
        return f"not running; none of its programs runs{again}"
    run, there, them = f"still run{'s' if len(left) == 1 else ''}", "", "it" if len(left) == 1 else "them"
    if not status["are_programs_known"]:
        there = f" on {status['host'] or 'its machine'}"
        run = f"may still run{there}, which is unknown here"
    programs = f"{plural(len(left), 'program')} that it has started {run}: {words.queues_and_pids(left)}"
    return f"not running; {programs}. `kill PID`{there} ends {them}, and the next start finds {them}{again}"


def _reasons(row: ActivatorRow, now: str) -> Text:
    """Returns the last decision, and the reasons why nothing is started now."""
    # The removal of an entry is not a fault. Its programs may run to their end.
    style = "yellow" if row.entry is None else "red"
    return _told(row, words.troubles(row, now), words.limits(row), "", style)


def _past_reasons(row: ActivatorRow, at: str) -> Text:
    """Returns the last decision of an activator that does not run, and its problems at its last sign of life."""
    return _told(row, words.past_troubles(row, at), [], "was ", "yellow")


def _told(row: ActivatorRow, troubles: list[str], limits: list[str], was: str, style: str) -> Text:
    """Returns the last decision, the reason why a notification is held, and the problems, without repetitions.

    Args:
        row: The row.
        troubles: The sentences about problems.
        limits: The sentences about why fewer programs run than the entry allows.
        was: The words before the reason for which a notification is held.
        style: The style of the troubles.
    """
    last, held = row.last, row.held
    lines = []
    if last is None:
        lines.append(("no decision yet", ""))
    elif not words.is_told_by_troubles(row, last.why, troubles):
        lines.append((f"{last.action}: {last.why}", ""))
    lines += [(line, "yellow") for line in limits]
    is_told = last is not None and last.action == "held"
    if held is not None and not is_told and not words.is_told_by_troubles(row, held.why, troubles):
        lines += [(f"{was}{line}", "yellow") for line in words.holds(row)]
    lines += [(line, style) for line in troubles]
    return Text("\n").join(Text(printable(line), line_style) for line, line_style in lines)
