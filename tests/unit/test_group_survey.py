"""The survey of consumer groups: what is asked at its first look, and what at those after it."""

import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from streaming.cli import group_facts, group_survey, groups
from streaming.cli.dashboard import group_map
from streaming.cli.dashboard.group_map import GroupMaps
from streaming.cli.group_facts import GroupFacts
from streaming.cli.group_survey import Finding, GroupSurvey
from streaming.cli.main import main
from streaming.core.observer.expiry import KeptFrom
from streaming.core.observer.logs import Logs
from streaming.core.observer.pictures import GroupPicture, GroupState, Member, Place
from streaming.core.observer.question import Answer
from streaming.core.observer.verdict import Verdict, with_absent
from streaming.core.times import iso_time
from streaming.daemons.activator.settings import DEFAULT_GROUP_ID
from streaming.daemons.monitor import sole_monitor
from streaming.daemons.observer import sole_observer
from streaming.daemons.router import sole_router
from streaming.daemons.transport import transport
from streaming.kafka.clients import Cluster
from streaming.kafka.group_looks import GroupKind
from streaming.system.stop_signals import Stopped
from tests.unit.test_wrapped_messages import Terminal

PLACES: list[Place] = [("t", number) for number in range(3)]


class Looks:
    """Answers as Kafka does about a group whose member commits nothing, and notes what is asked.

    Attributes:
        asked: What was asked for each topic, in order.
        not_answered: The partitions whose logs are not answered at the first look.
        own: The groups of our own programs.
        members: The members of the group.
        committed: The committed offset of each partition.
        kept_offsets: How long it keeps offsets.
        denials: What this user may not look at.
        is_closed: Whether the connection was closed.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.not_answered: set[Place] = set()
        self.own: tuple[str, ...] = ()
        self.members = [Member("m", topics=frozenset({"t"}), places=frozenset(PLACES))]
        self.committed = 0
        self.kept_offsets = SimpleNamespace(look=lambda: None, kept_ms=None)
        self.denials: str | None = None
        self.is_closed = False

    def kinds(self) -> dict[str, GroupKind]:
        return dict.fromkeys(("g", *self.own), GroupKind.CLASSIC)

    def new_denials(self) -> str | None:
        return self.denials

    def close(self) -> None:
        self.is_closed = True

    def pictures(self, kinds: dict[str, GroupKind]) -> dict[str, GroupPicture]:
        assert kinds == {"g": GroupKind.CLASSIC}
        if not self.members:  # they have left, and have read everything
            return {"g": GroupPicture(GroupState.EMPTY, committed=dict.fromkeys(PLACES, 5))}
        return {
            "g": GroupPicture(GroupState.STABLE, "range", tuple(self.members), dict.fromkeys(PLACES, self.committed))
        }

    def see_topics(self, topics: Iterable[str], logs: Logs) -> None:
        for topic in topics:
            self.asked.append(f"{topic}: partitions")
            logs.has(topic, len(PLACES))

    def see_logs(self, topics: Iterable[str], logs: Logs) -> None:
        for topic in topics:
            self.asked.append(f"{topic}: begins and ends")
            for place in set(PLACES) - self.not_answered:
                logs.seen(place, 0, 5, 1)
        self.not_answered.clear()

    def see_ends(self, topics: Iterable[str], logs: Logs) -> set[str]:
        for topic in topics:
            self.asked.append(f"{topic}: ends")
            for place in PLACES:
                logs.seen(place, 0, 9, 2)
        return set(topics)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    found = Looks()
    monkeypatch.setattr(group_survey, "GroupLooks", lambda _: found)
    monkeypatch.setattr(group_survey, "PhantomProbe", lambda _: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(group_survey, "_LOOK_INTERVAL_S", 0.0)
    return found


def surveyed(only: str | None = "g") -> Any:
    """Returns what is found about the group within 50 s, with a look every 20 s."""
    clock_s = 0.0

    def progress(_watched: int, _left_s: float) -> None:
        nonlocal clock_s
        clock_s += 20.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_survey.time, "monotonic", lambda: clock_s)
        patch.setattr(group_survey.time, "sleep", lambda _: None)
        [finding] = GroupSurvey(Cluster("localhost:1"), only).ask(50.0, progress)
    return finding


def test_after_the_first_look_only_the_ends_are_asked_for(looks: Looks) -> None:
    finding = surveyed()
    assert looks.asked[:2] == ["t: partitions", "t: begins and ends"]
    assert looks.asked[2:] == ["t: ends"] * 3
    assert finding.backlog == 27
    assert finding.answer.verdict.one_more is None, "it has committed nothing"


def test_what_was_not_answered_is_asked_for_again(looks: Looks) -> None:
    looks.not_answered = {PLACES[1]}
    finding = surveyed()
    assert looks.asked[:4] == ["t: partitions", "t: begins and ends"] * 2
    assert looks.asked[4:] == ["t: ends"] * 2
    assert finding.backlog == 27


def test_the_groups_of_our_own_programs_are_left_out_unless_one_is_named(looks: Looks) -> None:
    groups = sole_monitor.GROUP_ID, sole_router.GROUP_ID, sole_observer.GROUP_ID, transport.GROUP_ID, DEFAULT_GROUP_ID
    looks.own = (*groups, "p-queue-activation-host")
    assert surveyed(None).name == "g"
    survey = GroupSurvey(Cluster("localhost:1"), None)
    assert survey._present_kinds() == {"g": GroupKind.CLASSIC}
    assert survey.left_out == 6
    named = GroupSurvey(Cluster("localhost:1"), "p-queue-activation-host")
    assert (named._present_kinds(), named.left_out) == ({"p-queue-activation-host": GroupKind.CLASSIC}, 0)
    looks.own = ("queue-activation-readers", "queue-activation-monitor-2")
    assert len(GroupSurvey(Cluster("localhost:1"), None)._present_kinds()) == 3, "those of users have any other name"


@pytest.mark.parametrize("kept_ms", [60_000, None])
def test_how_long_offsets_are_kept_is_asked_and_told_of_groups_without_members(
    looks: Looks, kept_ms: int | None
) -> None:
    assert surveyed().kept_from is None
    looks.members.clear()
    looks.kept_offsets.look = lambda: setattr(looks.kept_offsets, "kept_ms", kept_ms)
    finding = surveyed()
    assert (finding.kept_from, finding.kept_ms) == (KeptFrom.LAST_MEMBER, kept_ms)


def test_a_watch_dates_its_answers_and_moves_neither_the_cursor_nor_a_line(
    looks: Looks, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def sleep(seconds: float) -> None:
        if seconds == groups._WATCH_S:
            if looks.committed:
                raise Stopped(signal.SIGINT)
            looks.committed = 5  # the answer changes

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(time, "sleep", sleep)
    with pytest.raises(Stopped):
        main(["groups", "g", "--watch", "--wait", "50ms", "--bootstrap-servers", "localhost:1"])
    assert terminal.getvalue() == "watching what members of 1 group commit, for up to 0.05 s\n"
    first, _, _, second, _, answer = capsys.readouterr().out.splitlines()
    assert all(re.fullmatch(r"as of \d\d:\d\d:\d\d UTC", line) for line in (first, second))
    assert answer == "  one more: no, nothing is unread"
    assert looks.is_closed


def test_a_watch_tells_that_a_missing_topic_is_there_now() -> None:
    there = with_finding(Verdict(False, "nothing is unread"))
    missing = with_finding(with_absent(Verdict(False, "nothing is unread"), ["orders"]))
    assert groups._essence(missing) != groups._essence(there)
    busy = with_finding(Verdict(False, "its members keep up"))
    assert groups._essence(busy) == groups._essence(there), "that changes all the time"


def with_finding(verdict: Verdict) -> Finding:
    return Finding("g", GroupKind.CLASSIC, GroupState.STABLE, 1, Answer(verdict, []))


class TestMapOfTheDashboard:
    """The dashboard watches a group whose page is open, and gives the answer of `groups`."""

    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], None]]:
        now_s = 1_000.0

        def passes(seconds: float) -> None:
            nonlocal now_s
            now_s += seconds

        with monkeypatch.context() as patch:
            patch.setattr(group_map.time, "monotonic", lambda: now_s)
            patch.setattr(group_map.wall_clock, "now_ms", lambda: int(now_s * 1_000))
            yield passes

    def test_members_that_may_be_about_to_commit_are_no_reason_for_one_more(
        self, looks: Looks, clock: Callable[[float], None]
    ) -> None:
        maps = GroupMaps(Cluster("localhost:1"))
        for committed in range(4):
            looks.committed = committed
            found = maps.of("g")
            assert found.finding is not None
            assert found.finding.answer.verdict.one_more is None
            assert "about to commit" in found.finding.answer.verdict.reason
            assert not any(each.is_reason for each in found.rows)
            assert sum(each.backlog for each in found.rows) > 0
            clock(2.0)
        looks.committed = 5
        found = maps.of("g")
        assert found.finding is not None
        assert found.finding.answer.verdict == Verdict(False, "its members keep up")
        assert found.looked_at == iso_time(1_008_000)

    def test_members_that_have_left_a_backlog_are_the_reason_until_they_have_committed_it(
        self, looks: Looks, clock: Callable[[float], None]
    ) -> None:
        maps = GroupMaps(Cluster("localhost:1"))
        verdicts = []
        for committed, seconds in ((0, 8.0), (0, 2.0), (1, 2.0), (1, 2.0), (5, 2.0)):
            looks.committed = committed
            found = maps.of("g")
            assert found.finding is not None
            verdict = found.finding.answer.verdict
            verdicts.append(verdict.one_more)
            assert any(each.is_reason for each in found.rows) == (verdict.one_more is True)
            clock(seconds)
        assert verdicts == [None, None, True, True, False], "first it had committed nothing"


class TestBacklogOfQueueShow:
    """`queue show` has the backlog of `groups` of the group that a queue stands for."""

    FACTS = GroupFacts("g", "Stable", 1, {"t": 3})

    def backlog(self, facts: GroupFacts = FACTS) -> int | None:
        return group_facts.with_backlog(Cluster("localhost:1"), facts).backlog

    def test_it_is_that_of_one_look(self, looks: Looks) -> None:
        assert self.backlog() == 15
        assert looks.is_closed
        looks.members = []
        assert self.backlog() == 0
        assert group_facts.with_backlog(Cluster("localhost:1"), self.FACTS).lines() == [
            "g: Stable, 1 member, backlog 0"
        ]

    def test_it_is_unknown_if_the_group_is_not_there_or_may_not_be_looked_at(self, looks: Looks) -> None:
        assert self.backlog(GroupFacts("g")) is None
        assert looks.asked == []
        assert self.backlog(replace(self.FACTS, name="another")) is None
        looks.denials = "Kafka does not grant this user Describe on topic t"
        assert self.backlog() is None
        assert self.FACTS.lines() == ["g: Stable, 1 member"]
