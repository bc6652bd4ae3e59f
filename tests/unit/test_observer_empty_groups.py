"""The commits of an observer for groups without members: when they are due, and when they are not."""

from types import SimpleNamespace
from typing import Any

import pytest

from streaming.core.observer.expiry import KeptFrom
from streaming.core.observer.logs import Logs
from streaming.core.observer.pictures import GroupPicture, GroupState, Member
from streaming.core.observer.watched_group import OffsetReset, Settings, WatchedGroup
from streaming.daemons.observer import empty_groups
from streaming.daemons.observer.empty_groups import EmptyGroups
from streaming.daemons.observer.entries import Watch
from streaming.daemons.observer.watched import Watched
from streaming.kafka.group_commits import Committed
from streaming.kafka.group_looks import GroupKind

REST_MS = 20_000
EMPTY = GroupPicture(GroupState.EMPTY, committed={("t", 0): 1}, kept_from=KeptFrom.LAST_COMMIT)
STABLE = GroupPicture(GroupState.STABLE, "", (Member("m"),), {("t", 0): 1}, KeptFrom.LAST_COMMIT)
NEW = GroupPicture(GroupState.EMPTY)


class World:
    """Groups, and the requests that an observer makes for them.

    Attributes:
        now_ms: The time.
        answer: The answer of Kafka to each commit.
        asked: The groups for which something was committed, in order.
        said: What was said.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 1_000
        self.answer = Committed(is_done=True)
        self.asked: list[str] = []
        self.said: list[str] = []
        self.logs = Logs()
        kept: Any = SimpleNamespace(kept_ms=3 * REST_MS, longest_rest_ms=REST_MS)
        commits: Any = SimpleNamespace(renew=self.commit, begin=lambda name, _ends: self.commit(name))
        looks: Any = SimpleNamespace(kept_offsets=kept, commits=commits)
        monkeypatch.setattr(empty_groups, "monotonic_ms", lambda: self.now_ms)
        self.groups = EmptyGroups(looks, self.logs, self.hint)

    def commit(self, name: str) -> Committed:
        self.asked.append(name)
        return self.answer

    def hint(self, each: Watched, name: str, text: str) -> None:
        if each.is_new_hint(text):
            self.said.append(f"{name}: {text}")

    def look(self, groups: dict[str, Watched], seconds: int = 1) -> None:
        """Looks once a second."""
        for _ in range(seconds):
            self.groups.look(groups)
            self.now_ms += 1_000


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def watched(picture: GroupPicture, **asks: bool) -> Watched:
    settings = Settings(topics=frozenset({"t"}), offset_reset=OffsetReset.LATEST)
    return Watched(Watch(GroupKind.CONSUMER, "q", settings, **asks), WatchedGroup(settings), picture)


def test_offsets_are_committed_again_at_once_and_then_after_a_third_of_the_time(world: World) -> None:
    group = watched(EMPTY, renews_offsets=True)
    world.look({"a": group}, 59)
    assert len(world.asked) == 3
    assert len(world.said) == 1


def test_not_while_there_are_members_but_as_soon_as_they_have_left_after_a_long_time(world: World) -> None:
    group = watched(STABLE, renews_offsets=True)
    world.look({"a": group}, 30)
    assert world.asked == []
    group.picture = EMPTY
    world.look({"a": group})
    assert world.asked == ["a"]
    assert world.said[0] == "a: has no members any more: each offset kept for 1m after its last commit"


def test_an_entry_that_does_not_ask_for_it_gets_nothing(world: World) -> None:
    nothing_to_renew, nothing_to_anchor = watched(NEW, renews_offsets=True), watched(EMPTY, anchors=True)
    groups = {"a": watched(EMPTY), "b": watched(NEW), "c": nothing_to_renew, "d": nothing_to_anchor}
    world.look(groups, 30)
    assert (world.asked, world.said) == ([], [])


def test_what_members_have_prevented_is_tried_again_soon_and_not_said(world: World) -> None:
    world.answer = Committed(is_done=False)
    world.look({"a": watched(EMPTY, renews_offsets=True)}, 10)
    assert len(world.asked) == 2
    assert world.said == []


def test_what_this_user_may_not_do_is_tried_again_after_a_minute_and_said_once(world: World) -> None:
    world.answer = Committed(is_done=False, denied="Read on topic t")
    world.look({"a": watched(EMPTY, renews_offsets=True)}, 119)
    assert len(world.asked) == 2
    assert len(world.said) == 1
    assert "nothing can be committed for it: Kafka does not grant this user Read on topic t." in world.said[0]


def test_many_groups_are_shared_out_over_several_looks(world: World) -> None:
    groups = {f"g{number}": watched(EMPTY, renews_offsets=True) for number in range(50)}
    counts = []
    for _ in range(4):
        before = len(world.asked)
        world.look(groups)
        counts.append(len(world.asked) - before)
    assert counts == [20, 20, 10, 0]
    assert sorted(world.asked) == sorted(groups)


def test_a_group_is_anchored_once_all_ends_are_known(world: World) -> None:
    group = watched(NEW, anchors=True)
    world.look({"a": group})
    world.logs.has("t", 2)
    world.logs.seen(("t", 0), 0, 5, world.now_ms)
    world.look({"a": group})
    assert world.asked == []
    world.logs.seen(("t", 1), 0, 5, world.now_ms)
    world.look({"a": group})
    assert world.asked == ["a"]
    assert world.said == ["a: had committed nothing: the ends of 2 partitions of t were committed for it (`anchor`)"]
