"""The looks of an observer at its groups, with Kafka's answers in memory."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from streaming.core.observer.logs import Logs
from streaming.core.observer.phantoms import Probed
from streaming.core.observer.pictures import GroupPicture, GroupState, Place
from streaming.core.observer.watched_group import Report
from streaming.daemons.activator.config import Config, ProgramEntry
from streaming.daemons.observer.counts import Counts
from streaming.daemons.observer.settings import ObserverSettings
from streaming.daemons.observer.watched_groups import WatchedGroups
from streaming.kafka import phantom_probe
from streaming.kafka.clients import Cluster
from streaming.kafka.group_looks import GroupKind

SETTINGS = ObserverSettings(Cluster(""), Path("activator.toml"))
PLACE = "t", 0
END = 3


class Kafka:
    """A topic with one partition, which always has END offsets, and a group without members that has committed nothing.

    Attributes:
        first: The offset of the first record; None: no offset has content.
        is_new: Whether the topic was made again since the last look.
        is_denied: Whether the user may not read the topic.
        is_silent: Whether tests take too long.
        tests: The number of looks that have tested a backlog.
        said: The lines of the observer.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self.is_new = self.is_denied = self.is_silent = False
        self.tests = 0
        self.said: list[str] = []
        kept = SimpleNamespace(look=lambda: None, kept_ms=None)
        looks: Any = SimpleNamespace(
            kinds=lambda: {"g": GroupKind.CLASSIC},
            kept_offsets=kept,
            pictures=lambda kinds: dict.fromkeys(kinds, GroupPicture(GroupState.EMPTY)),
            see_ends=lambda topics, _: topics,
            new_denials=lambda: None,
            see_topics=self._see_topics,
            see_logs=lambda topics, logs: [logs.seen((topic, 0), 0, END, 0) for topic in topics],
        )
        probe: Any = SimpleNamespace(test=self._test)
        self.groups = WatchedGroups(SETTINGS, looks, probe, Counts(), self.said.append)

    def _see_topics(self, topics: set[str], logs: Logs) -> list[str]:
        for topic in topics:
            logs.has(topic, 1)
        return [*topics] if self.is_new else []

    def _test(
        self, backlogs: dict[str, tuple[tuple[Place, int], ...]], _limit_s: float
    ) -> dict[str, phantom_probe.Tested]:
        until = END if self.first is None else self.first
        self.tests += any(backlogs.values())
        return {
            group: phantom_probe.Tested(
                place, Probed(begin, begin, is_denied=True) if self.is_denied else Probed(begin, until, self.first)
            )
            for group, to_test in backlogs.items()
            for place, begin in to_test
            if not self.is_silent
        }

    def look(self, *, is_full: bool) -> list[Report]:
        config = Config([ProgramEntry(command="read", group="g", topics=["t"])])
        return [report for _, report in self.groups.look(config, is_changed=is_full)]

    def one_more(self) -> bool | None:
        """Returns the answer that a full look reports."""
        [report] = self.look(is_full=True)
        return report.one_more


def test_a_topic_that_was_made_again_is_tested_again_even_if_it_is_as_long_as_before() -> None:
    for before, now in ((None, 1), (1, None)):
        kafka = Kafka()
        kafka.first = before
        assert kafka.one_more() is (before is not None)
        kafka.first, kafka.is_new = now, True
        assert kafka.one_more() is (now is not None)


def test_an_observer_that_has_got_the_right_to_read_notices_it_in_its_next_full_look() -> None:
    kafka, denied = Kafka(), "g: may not read t, so offsets without content count as messages"
    kafka.is_denied = True
    assert kafka.one_more() is True
    assert kafka.said.count(denied) == 1
    kafka.is_denied = False
    assert kafka.look(is_full=False) == []
    assert kafka.tests == 1, "a refused test costs requests, so only a full look repeats it"
    assert kafka.one_more() is False
    assert kafka.said[-3:] == [
        "g: may read t now, so offsets without content no longer count as messages",
        "g: t-0 holds only offsets without content from 0 on",
        "g: one more: no, nothing is unread",
    ]
    kafka.is_denied, kafka.is_new = True, True
    assert kafka.one_more() is True
    assert kafka.said.count(denied) == 2, "the right was taken back"


def test_while_the_right_to_read_is_asked_for_again_the_group_keeps_its_messages() -> None:
    kafka = Kafka()
    kafka.is_denied = True
    [first] = kafka.look(is_full=True)
    for kafka.is_silent in (False, True):
        assert kafka.look(is_full=True) == [], "nothing has changed"
        assert kafka.look(is_full=False) == []
    assert (first.unread, first.one_more) == (END, True)
    assert len(kafka.said) == len({*kafka.said})
    kafka.is_denied = kafka.is_silent = False
    assert kafka.one_more() is False
