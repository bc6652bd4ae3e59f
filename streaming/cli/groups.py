"""The command `groups`: says whether one more reader of a consumer group would have work."""

import json
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from streaming.cli.lines import say
from streaming.cli.options import Json, Kafka
from streaming.core.numbers import plural
from streaming.core.observer.expiry import kept_in_words
from streaming.core.times import iso_time
from streaming.system import ages, durations, start_progress, wall_clock
from streaming.system.durations import Duration
from streaming.system.logs import printable
from streaming.system.options import duration
from streaming.system.screens import FILE_WIDTH, Sentence
from streaming.system.wrapped_text import columns

if TYPE_CHECKING:
    from streaming.cli.group_survey import Finding

# The shortest time from one survey of --watch to the next.
_WATCH_S = 1.0
_ANSWERS = {True: ("yes", "bold yellow"), False: ("no", "green"), None: ("unknown", "dim")}


def groups(
    group: Annotated[str | None, typer.Argument(metavar="GROUP", help="Only this group.", show_default=False)] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until Ctrl-C; print what changes.")] = False,
    wait: Annotated[
        Duration, duration("--wait", "How long to watch a group whose members may only be about to commit.")
    ] = durations.parse("7500ms"),
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Look once. Whether messages wait for members is then often unknown.")
    ] = False,
    as_json: Json = False,
    *,
    at: Kafka,
) -> None:
    """Show for each consumer group whether one more reader would have work, and why.

    Changes nothing, and needs no topics of this program: only the right Describe on groups and topics. With Read on the
    topics, it tells a backlog from offsets without content, such as those of transaction markers. Members commit every
    5 s by default, so a group that is not at the end of its topics is watched for --wait. The groups of our own
    programs are left out, unless GROUP names one.
    """
    from streaming.cli.group_survey import GroupSurvey

    survey = GroupSurvey(at.cluster(), group)
    told: dict[str, Any] = {}
    left_out = 0
    say_once = cache(start_progress.say_to_user)

    def progress(watched: int, _left_s: float) -> None:
        if not told:
            members = f"members of {plural(watched, 'group')}"
            say_once(f"watching what {members} commit, for up to {wait.ms / 1000:g} s")

    try:
        while True:
            with nullcontext() if told else start_progress.told_again("looking", start_progress.say_to_user):
                found = survey.ask(0.0 if no_wait else wait.ms / 1000, progress)
            changed = [each for each in found if told.get(each.name) != _essence(each)]
            if watch and changed and not as_json:
                say(f"as of {ages.instant_utc(iso_time(wall_clock.now_ms()))}")
            _print(changed, as_json)
            if (denials := survey.new_denials()) is not None:
                say(denials, err=True)
            if not (found or told or as_json):
                say("no consumer groups that this user may see")
            if survey.left_out != left_out and not as_json:
                left_out = survey.left_out
                itself = plural(left_out, "consumer group")
                say(f"left out: {itself} of queue-activation's own programs. Name one to see it", err=True)
            if not watch:
                return
            told = {each.name: _essence(each) for each in found} or {"": ()}
            time.sleep(_WATCH_S)
    finally:
        survey.close()


def _essence(finding: "Finding") -> tuple[Any, ...]:
    """Returns the values whose changes --watch prints. Numbers of messages are left out: they change all the time."""
    verdict = finding.answer.verdict
    return finding.state, finding.members, verdict.one_more, verdict.absent


def _print(found: Iterable["Finding"], as_json: bool) -> None:
    is_screen = sys.stdout.isatty()
    console = Console(highlight=False, width=columns(sys.stdout) if is_screen else FILE_WIDTH)
    for each in found:
        if as_json:
            print(json.dumps(as_plain(each)), flush=True)  # noqa: T201
        elif is_screen:
            console.print(Sentence(lines(each), hang=2), crop=False)
        else:
            console.print(lines(each), soft_wrap=True)


def lines(finding: "Finding") -> Text:
    """Returns a group and its answer as two lines."""
    answer, style = _ANSWERS[finding.answer.verdict.one_more]
    members = plural(finding.members, "member")
    text = Text.assemble((printable(finding.name), "bold"), f"  {finding.state.value}, {finding.kind}, {members}, ")
    phantom = " (only offsets without content)" if finding.phantom else ""
    text.append(f"backlog {finding.backlog:,}{phantom}{_kept(finding)}\n")
    text.append(f"  one more: {answer}", style)
    text.append(f", {printable(finding.answer.verdict.reason)}")
    if finding.lag_rule_readers:
        text.append(f" (a lag rule with KEDA's defaults wants {finding.lag_rule_readers:,})", "dim")
    return text


def _kept(finding: "Finding") -> str:
    if finding.kept_from is None:
        return ""
    kept = None if finding.kept_ms is None else str(durations.of(finding.kept_ms))
    return f", {kept_in_words(finding.kept_from, kept)}"


def as_plain(finding: "Finding") -> dict[str, Any]:
    """Returns a group and its answer as plain values."""
    return {
        "group": finding.name,
        "state": finding.state.value,
        "kind": finding.kind.value,
        "members": finding.members,
        "backlog": finding.backlog,
        "phantom": finding.phantom,
        "one_more": finding.answer.verdict.one_more,
        "reason": finding.answer.verdict.reason,
        "lag_rule_readers": finding.lag_rule_readers,
        "offsets_kept_from": finding.kept_from,
        "offsets_kept_ms": finding.kept_ms,
        "partitions": [
            {
                "topic": each.place[0],
                "partition": each.place[1],
                "backlog": each.backlog,
                "owner": None if each.owner is None else each.owner.member_id,
            }
            for each in finding.answer.waiting
        ],
    }
