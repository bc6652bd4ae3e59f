"""The sentences about a row of queue-activators. `queue show`, `queues` and `activator status` share them."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from streaming.core.activation.running_programs import LONG_MS, crash_in_a_row, fatal
from streaming.core.numbers import plural
from streaming.core.times import iso_time
from streaming.system import hints
from streaming.system.ages import instant_utc
from streaming.system.documents import document
from streaming.wire.activator_rows import ActivatorRow, ProgramRow

# What to do about a queue without an entry.
ADD_ENTRY = "add [[programs]] with its `queue`, or its `group`, and a `command`"
_MAX_NAMES = 10


def where(row: ActivatorRow) -> str:
    """Returns the name of the row's activator: its host and its config."""
    return f"the activator on {row.host} (config {row.config_file})"


def programs(row: ActivatorRow, *, is_past: bool = False) -> str:
    """Returns which programs run for the queue, or ran when an ended activator wrote the row (`is_past`)."""
    most = f" (at most {most_of(row)})" if row.max is not None else ""
    run = "ran" if is_past else "runs" if len(row.programs) <= 1 else "run"
    if not row.programs:
        return f"no program {run}{most}"
    each = [f"process {program.pid} since {instant_utc(program.start_time)}" for program in row.programs]
    return f"{plural(len(each), 'program')} {run}{most}: {', '.join(each)}"


def last_end(row: ActivatorRow) -> list[str]:
    """Returns how and when the last program has ended, if a program has ended."""
    ended = row.last_exit
    if ended is None:
        return []
    at = instant_utc(ended.at)
    when = f"before {at}, while the activator did not run" if ended.is_noticed_later else f"at {at}"
    return [f"the last one ended {when}: {ended.how}"]


def most_of(row: ActivatorRow) -> int | None:
    """Returns the limit of programs that run at a time; None without an entry."""
    return row.max if row.max is None or row.partitions is None else min(row.max, row.partitions)


def limits(row: ActivatorRow) -> list[str]:
    """Returns why fewer programs than `max` run at a time, if they are fewer."""
    most = most_of(row)
    # The row of a queue whose entry was removed still has `partitions`, but no `max`.
    if row.partitions is None or most is None or most == row.max:
        return []
    return [
        f"max is {row.max}, but the queue's topic has {plural(row.partitions, 'partition')}: one more program "
        "would never get a message"
    ]


def troubles(row: ActivatorRow, now: str) -> list[str]:
    """Returns the problems that keep the activator from starting a program, with the end of the programs' log.

    Args:
        row: The row.
        now: The time, ISO 8601.
    """
    if lacks := lacking(row):
        return lacks
    found = list(_of_programs(row, now))
    return [*found, *log(row)] if found else []


def lacking(row: ActivatorRow, *, is_past: bool = False) -> list[str]:
    """Returns the gap in the config that keeps programs for the queue from being started, if there is a gap.

    Args:
        row: The row.
        is_past: Whether its activator no longer runs.
    """
    if row.entry is None:
        return [f"no entry of {where(row)} {'matched' if is_past else 'matches'} this queue: {ADD_ENTRY}"]
    if row.refusal is None:
        return []
    return [f"the entry {row.entry} of {where(row)} {'started' if is_past else 'starts'} nothing: {row.refusal}"]


def is_told_by_troubles(row: ActivatorRow, why: str, troubles: Sequence[str]) -> bool:
    """Returns whether the sentences about troubles already contain a reason.

    Args:
        row: The row.
        why: The reason of a decision, or of holding a notification.
        troubles: The sentences.
    """
    if row.fatal_exit_code is not None and fatal(row.fatal_exit_code) in why:
        return bool(troubles)
    return crash_in_a_row(row.crashes) in why and any(_crashes(row) in each for each in troubles)


def _of_programs(row: ActivatorRow, now: str) -> Iterator[str]:
    if row.fatal_exit_code is not None:
        yield f"{fatal(row.fatal_exit_code)}: nothing is started until the entry in the config changes"
    last = f": {row.last_exit.how}" if row.last_exit is not None else ""
    backoff_until = row.backoff_until if row.backoff_until is not None and row.backoff_until > now else ""
    if row.gave_up_until is not None and row.gave_up_until > now:
        earliest = f" (not before {instant_utc(backoff_until)})" if backoff_until else ""
        latest = instant_utc(max(row.gave_up_until, backoff_until))
        yield (
            f"gave up after {_crashes(row)}{last}. Tried again when the next notification comes{earliest}, at {latest} "
            "at the latest, and when the entry in the config changes"
        )
    elif backoff_until:
        yield f"nothing is started until {instant_utc(backoff_until)}, after {_crashes(row)}{last}"
    elif row.crashes and row.fatal_exit_code is None and _is_another_try(row, now):
        yield f"trying again after {_crashes_with_last(row)}"
    yield from in_vain(row, now)


def _is_another_try(row: ActivatorRow, now: str) -> bool:
    """Returns whether a program is tried again after crashes, and no program has run for long without a crash."""
    long_ago = _before(now, LONG_MS)
    is_tried = row.held is not None or bool(row.programs)
    is_recent = row.last_exit is not None and row.last_exit.at > long_ago
    return is_tried and (is_recent or not any(program.start_time <= long_ago for program in row.programs))


def in_vain(row: ActivatorRow, now: str, *, is_past: bool = False) -> Iterator[str]:
    """Yields the questions about programs that have exited, or run for long, without visible work.

    Args:
        row: The row.
        now: The time, ISO 8601; of an activator that no longer runs, when it wrote the row.
        is_past: Whether the row's activator no longer runs.
    """
    running = _joins_nothing if row.group is not None else _reads_nothing
    questions = [*([_without_receive(row)] if row.nobody_joined else []), *running(row, now, is_past=is_past)]
    if questions:
        questions[-1] += _advice(row)  # one for all of them
    yield from questions


def oldest(row: ActivatorRow) -> ProgramRow:
    """Returns the running program that was started first."""
    return min(row.programs, key=lambda program: program.start_time)


def _joins_nothing(row: ActivatorRow, _now: str, *, is_past: bool) -> Iterator[str]:
    """Yields the question about the oldest program, if no member has joined the group within `startup_grace`."""
    if row.unanswered_since is None or not row.programs:
        return
    runs, has = ("ran", "had") if is_past else ("runs", "has")
    yield (
        f"process {oldest(row).pid} {runs}, and the observer {has} seen nobody join the consumer group {row.group} "
        f"since {instant_utc(row.unanswered_since)}: does it consume with this `group.id`?"
    )


def _reads_nothing(row: ActivatorRow, now: str, *, is_past: bool) -> Iterator[str]:
    """Yields the question about programs that run for long, although the monitor got no report of a RECEIVE."""
    if row.unanswered_since is None:
        return
    long_ago = _before(now, LONG_MS)
    pids = [str(program.pid) for program in row.programs if program.start_time < long_ago]
    if pids and row.unanswered_since < long_ago:
        who, run, ask = f"process {pids[0]}", "runs", "does it report, does it hang, or has it"
        if len(pids) > 1:
            who, run, ask = f"processes {', '.join(pids)}", "run", "do they report, do they hang, or have they"
        run, has, ask = (run, "has", f": {ask} been busy for that long?") if not is_past else ("ran", "had", ".")
        since = instant_utc(row.unanswered_since)
        yield f"{who} {run}, and nobody {has} called RECEIVE since {since}{ask}"


def _before(now: str, duration_ms: int) -> str:
    return iso_time(round(datetime.fromisoformat(now).timestamp() * 1000) - duration_ms)


def past_troubles(row: ActivatorRow, at: str) -> list[str]:
    """Returns the problems with the programs, from the row of an activator that no longer runs.

    Args:
        row: The row.
        at: The time at which the row was written, ISO 8601.
    """
    if row.entry is None or row.refusal is not None:
        return []
    found = list(_past_of_programs(row, at))
    return [*found, *log(row)] if found else []


def _past_of_programs(row: ActivatorRow, at: str) -> Iterator[str]:
    if row.fatal_exit_code is not None:
        yield f"nothing was started any more after the fatal exit code {row.fatal_exit_code}"
    elif row.gave_up_until is not None:
        yield f"it had given up after {_crashes_with_last(row)}"
    elif row.crashes and (row.backoff_until is not None or _is_another_try(row, at)):
        yield f"there had been {_crashes_with_last(row)}"
    yield from in_vain(row, at, is_past=True)


def _without_receive(row: ActivatorRow) -> str:
    """Returns the question about programs that have exited with success, but without visible work."""
    if row.group is None:
        return f"{row.exits_without_receive} readers in a row exited without a RECEIVE: does the program report?"
    count = row.exits_without_receive
    programs, they = ("1 program", "does it") if count == 1 else (f"{count} programs in a row", "do they")
    return (
        f"{programs} exited, and the observer has seen nobody join the consumer group {row.group} or commit in it: "
        f"{they} consume with this `group.id`?"
    )


def why_not_expected(row: ActivatorRow) -> str:
    """Returns why a running activator's program brings no reader, and what to look at; empty if a reader may come."""
    runs = f"process {oldest(row).pid} runs, and " if row.programs else ""
    if not row.nobody_joined:
        is_late = runs and row.group is not None and row.unanswered_since is not None
        return f"{runs}has not joined the consumer group {row.group}" if is_late else ""
    count = row.exits_without_receive
    who, their = ("program has", "its") if count == 1 else (f"{count} programs have", "their")
    what = f"joining the consumer group {row.group}, so look at {their} `group.id`"
    if row.group is None:  # `count` is at least MANY_EXITS, so the words are plural
        what = "a RECEIVE, so see that they report"
    return f"{runs}the last {who} exited without {what}"


def left_running(programs: Sequence[tuple[str, int]], stopped: Sequence[tuple[str, int]] = ()) -> str:
    """Returns the words about the programs that an activator leaves running, or has stopped at its end.

    Args:
        programs: The queue and the process id of each program that runs.
        stopped: The same of each program that the activator has stopped. It stops all programs, or none.
    """
    if stopped:
        return f"{plural(len(stopped), 'program')} ended by this activator: {queues_and_pids(stopped)}"
    if not programs:
        return "no program is running"
    them, they_are = ("it", "it is") if len(programs) == 1 else ("them", "they are")
    return (
        f"{plural(len(programs), 'program')} left running: {queues_and_pids(programs)}. The next start finds {them}. "
        f"With {hints.option('--stop-programs')}, {they_are} stopped too"
    )


def queues_and_pids(programs: Sequence[tuple[str, int]]) -> str:
    """Returns the queue and the process id of each program, of _MAX_NAMES programs at most."""
    each = ", ".join(f"{queue} (process {pid})" for queue, pid in sorted(programs)[:_MAX_NAMES])
    return f"{each}{', ...' if len(programs) > _MAX_NAMES else ''}"


def holds(row: ActivatorRow) -> list[str]:
    """Returns why a notification is held, if the row has a held notification."""
    if row.held is None:
        return []
    return [f"held: #{row.held.sequence}: {row.held.why or 'a program is about to be started for it'}"]


def log(row: ActivatorRow) -> list[str]:
    """Returns the name of the programs' log, with its last line."""
    if row.log_file is None:
        return []
    return [f"log {row.log_file}{'' if row.last_line is None else f', last line: {row.last_line}'}"]


def _crashes(row: ActivatorRow) -> str:
    return "a crash" if row.crashes == 1 else f"{row.crashes} crashes in a row"


def _crashes_with_last(row: ActivatorRow) -> str:
    if row.last_exit is None:
        return _crashes(row)
    return f"{_crashes(row)}: {row.last_exit.how}, the last one at {instant_utc(row.last_exit.at)}"


def _advice(row: ActivatorRow) -> str:
    """Returns the advice that follows a question about programs without visible work, after a blank."""
    groups = document("guide/consumer-groups.md")
    if row.group is not None:
        return f" See {groups}"
    plain = f"For a plain consumer, name its `group` in the entry instead: {groups}"
    return f" See {document('guide/reporting.md')}. {plain}"
