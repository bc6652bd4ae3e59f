"""The groups that an observer watches, from the entries of the activator's file and the groups that exist."""

from pathlib import Path
from typing import Any

import pytest

from streaming.core.observer.watched_group import OffsetReset
from streaming.daemons.activator.config import Config, ProgramEntry
from streaming.daemons.observer.entries import Watches, watches
from streaming.daemons.observer.settings import ObserverSettings
from streaming.kafka.clients import Cluster
from streaming.kafka.group_looks import GroupKind

SETTINGS = ObserverSettings(Cluster(""), Path("activator.toml"), topic_prefix="p-")
CLASSIC, SHARE = GroupKind.CLASSIC, GroupKind.SHARE


def entry(group: str | None, **more: Any) -> ProgramEntry:
    return ProgramEntry(command="read", group=group, **more)


def found(*entries: ProgramEntry, **kinds: GroupKind) -> Watches:
    return watches(Config([*entries]), kinds, SETTINGS)


def test_a_group_that_is_named_is_watched_even_before_it_exists() -> None:
    watch = found(entry("a", topics=["t"], offset_reset="latest", commit_interval="1s")).by_group["a"]
    assert (watch.kind, watch.queue) == (CLASSIC, "a")
    assert (watch.settings.topics, watch.settings.offset_reset) == (frozenset({"t"}), OffsetReset.LATEST)
    assert (watch.settings.commit_interval_ms, watch.settings.look_interval_ms) == (1_000, 500)


def test_a_pattern_names_groups_that_exist() -> None:
    watched = found(entry("a*"), a1=CLASSIC, a2=GroupKind.CONSUMER, b=CLASSIC).by_group
    assert {group: watch.kind for group, watch in watched.items()} == {"a1": CLASSIC, "a2": GroupKind.CONSUMER}


def test_the_first_entry_applies_and_those_of_queues_name_no_group() -> None:
    watched = found(entry(None, queue="a2"), entry("a1", queue="orders"), entry("a*"), a1=CLASSIC, a2=CLASSIC).by_group
    assert {group: watch.queue for group, watch in watched.items()} == {"a1": "orders", "a2": "a2"}


def test_what_cannot_be_watched_is_said() -> None:
    refused = found(
        entry("one", queue="b"), entry("*"), **{"one": CLASSIC, "b": CLASSIC, "s": SHARE, "a.b.c.d": CLASSIC}
    ).refused
    assert refused == {
        "b": "its queue b stands for the group one",
        "s": "it is a share group: Kafka tells no client how many messages wait in it",
        "a.b.c.d": "its name is no valid name of a queue, which has one to three parts of 1-128 characters with dots "
        "between them, and no control characters. Write an entry for it alone, with `queue`",
    }


@pytest.mark.parametrize("own", ["queue-activation-monitor", "p-queue-activation-host", "q-queue-activation-host"])
def test_no_pattern_names_the_group_of_one_of_our_own_programs(own: str) -> None:
    watched = found(entry("*"), **{own: CLASSIC, "orders": CLASSIC})
    assert [*watched.by_group] == ["orders"]
    assert not watched.refused
    assert [*found(entry(own), **{own: CLASSIC}).by_group] == [own], "one that is named is watched"
