"""Decides which running program is asked to end, and when a program is started although nothing is unread.

Both decisions are for consumer groups that report nothing. Some of their programs never exit, and Kafka deletes the
offsets of a group without members.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from streaming.core.activation.held_notifications import SEEN_MS, ViewRow
from streaming.core.activation.start_policy import Policy
from streaming.core.times import FOREVER_MS

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"))
# Most programs call RECEIVE within this time, and process a message within this time.
LONG_MS = 120_000
# If this number of programs in a row exits without a RECEIVE, it is not a coincidence.
MANY_EXITS = 3
# The time at which consumers last ran is exact to a tenth of the longest rest, because each change is written to disk.
_PARTS_OF_REST = 10


@dataclass(slots=True)
class Program:
    """A running program.

    Attributes:
        started_ms: When the program was started.
        notification_id: The notification for which the program was started; None if `min` or the end of the
            longest rest was the reason.
        sequence: The number of the notification's activation.
        unread: The number of unread messages when the monitor wrote the notification.
        post_time: When the monitor wrote the notification.
        is_stopping: Whether the program was asked to end, because nothing is left to do.
        may_have_received: Whether a reader has received since the program was started.
    """

    started_ms: int
    notification_id: str | None = None
    sequence: int | None = None
    unread: int = 0
    post_time: str = ""
    is_stopping: bool = False
    may_have_received: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a queue's last program.

    Attributes:
        at_ms: When the activator noticed the end.
        how: How the program has ended, in words.
        is_noticed_later: Whether the program had ended earlier, while no activator ran.
    """

    at_ms: int
    how: str
    is_noticed_later: bool = False


def are_in_vain(exits_without_receive: int, ended: Ended | None, policy: Policy, row: ViewRow) -> bool:
    """Returns whether it is certain that programs have exited without a RECEIVE, or without joining their group.

    Args:
        exits_without_receive: The number of programs with a successful exit code but without a RECEIVE.
        ended: The end of the program that ended last.
        policy: The config's entry.
        row: The queue's row of the view, which shows no RECEIVE and no new member.
    """
    if ended is None or not exits_without_receive:
        return False
    if exits_without_receive >= MANY_EXITS:
        return row.shows(ended.at_ms)
    return policy.is_of_group and row.shows(ended.at_ms + SEEN_MS)


def ending(exit_code: int | None) -> str:
    """Returns in words how a program has ended."""
    if exit_code is None:
        return "exit code unknown"
    return f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"


def crash_in_a_row(count: int) -> str:
    """Returns the words for this number of crashes in a row."""
    return f"crash {count} in a row"


def fatal(exit_code: int) -> str:
    """Returns the words for an exit code that forbids further starts."""
    return f"exit code {exit_code} was fatal"


def surplus(programs: Mapping[str, Program], policy: Policy, row: ViewRow | None, now_ms: int) -> str | None:
    """Returns the session of the program that is asked to end now; None without such a program.

    The youngest program ends first, if it has had the time to begin its work. The next program is asked only after that
    end.
    """
    if row is None or len(programs) <= policy.min_programs or any(each.is_stopping for each in programs.values()):
        return None
    youngest = max(programs, key=lambda session_id: programs[session_id].started_ms)
    least_age_ms = max(policy.idle_stop_ms, policy.startup_grace_ms)
    if now_ms - programs[youngest].started_ms < least_age_ms or not row.is_idle_for(policy.idle_stop_ms, now_ms):
        return None
    return youngest


def why_idle(policy: Policy) -> str:
    """Returns why a program is asked to end."""
    idle = f"the group has had nothing unread and has committed nothing for {_duration(policy.idle_stop_ms)}"
    return f"SIGTERM, because {idle} (`idle_stop`)"


def last_run_ms(before_ms: int, policy: Policy, runs: bool, now_ms: int) -> int:
    """Returns when consumers of the group last ran, as far as that is known.

    Args:
        before_ms: The result of the previous call. FOREVER_MS: unknown, so that the rest begins now.
        policy: The config's entry, with the longest rest.
        runs: Whether a consumer runs now.
        now_ms: The time.
    """
    if policy.longest_rest_ms >= FOREVER_MS:
        return FOREVER_MS
    if before_ms > now_ms:
        return now_ms  # the instant was unknown, or the clock was set back
    return now_ms if runs and now_ms - before_ms >= policy.longest_rest_ms // _PARTS_OF_REST else before_ms


def rest_instants_ms(last_run_ms: int, policy: Policy) -> tuple[int, int]:
    """Returns when `last_run_ms` must be updated while consumers run, and when the longest rest is over."""
    return last_run_ms + policy.longest_rest_ms // _PARTS_OF_REST, last_run_ms + policy.longest_rest_ms


def why_rest_is_over(policy: Policy) -> str:
    """Returns why a program is started although nothing is unread."""
    rest_ms = policy.longest_rest_ms
    least_ms = rest_ms - rest_ms // _PARTS_OF_REST  # a consumer may have run since `last_run_ms` was updated
    return (
        f"no consumer of the group was seen for at least {_duration(least_ms)}, and Kafka forgets the offsets of a "
        "group that stays empty (`offsets.retention.minutes`)"
    )


def _duration(duration_ms: int) -> str:
    for unit_ms, name in _UNITS:
        if duration_ms >= 2 * unit_ms:
            return f"{round(duration_ms / unit_ms, 2):g} {name}"
    return f"{duration_ms / 1000:g} s"
