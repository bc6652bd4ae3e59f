"""The looks of an observer at its groups, with Kafka's answers in memory."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from streaming.core.observer.logs import Logs
from streaming.core.observer.phantoms import Probed
from streaming.core.observer.pictures import GroupPicture, GroupState, Place
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
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self.is_new = False
        kept = SimpleNamespace(look=lambda: None, kept_ms=None)
        looks: Any = SimpleNamespace(
            kinds=lambda: {"g": GroupKind.CLASSIC},
            kept_offsets=kept,
            pictures=lambda kinds: dict.fromkeys(kinds, GroupPicture(GroupState.EMPTY)),
            new_denials=lambda: None,
            see_topics=self._see_topics,
            see_logs=lambda topics, logs: [logs.seen((topic, 0), 0, END, 0) for topic in topics],
        )
        probe: Any = SimpleNamespace(test=self._test)
        self.groups = WatchedGroups(SETTINGS, looks, probe, Counts(), lambda _: None)

    def _see_topics(self, topics: set[str], logs: Logs) -> list[str]:
        for topic in topics:
            logs.has(topic, 1)
        return [*topics] if self.is_new else []

    def _test(
        self, backlogs: dict[str, tuple[tuple[Place, int], ...]], _limit_s: float
    ) -> dict[str, phantom_probe.Tested]:
        until = END if self.first is None else self.first
        return {
            group: phantom_probe.Tested(place, Probed(begin, until, self.first))
            for group, to_test in backlogs.items()
            for place, begin in to_test
        }

    def one_more(self) -> bool | None:
        """Returns the answer that a full look reports."""
        config = Config([ProgramEntry(command="read", group="g", topics=["t"])])
        [(_, report)] = self.groups.look(config, is_changed=True)
        return report.one_more


def test_a_topic_that_was_made_again_is_tested_again_even_if_it_is_as_long_as_before() -> None:
    for before, now in ((None, 1), (1, None)):
        kafka = Kafka()
        kafka.first = before
        assert kafka.one_more() is (before is not None)
        kafka.first, kafka.is_new = now, True
        assert kafka.one_more() is (now is not None)
