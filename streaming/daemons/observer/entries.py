"""The groups that the entries of the activator's file name, and the queues that represent the groups."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from streaming.core.observer.watched_group import OffsetReset, Settings
from streaming.daemons.activator.config import Config, ProgramEntry
from streaming.daemons.observer.settings import ObserverSettings
from streaming.kafka.group_looks import GroupKind
from streaming.system import durations
from streaming.wire.input_records import QUEUE_NAME_RULE, is_queue_name
from streaming.wire.own_groups import is_own_group


@dataclass(frozen=True)
class Watch:
    """A group to watch.

    Attributes:
        kind: The group's protocol.
        queue: The queue that represents the group.
        settings: The group's settings.
        renews_offsets: Whether the observer commits the offsets again while the group has no members, so that Kafka
            keeps them.
        anchors: Whether the observer commits the ends of the topics if the group has neither members nor offsets.
    """

    kind: GroupKind
    queue: str
    settings: Settings
    renews_offsets: bool = False
    anchors: bool = False


@dataclass(frozen=True)
class Watches:
    """The groups to watch, and the groups that cannot be watched.

    Attributes:
        by_group: The groups to watch.
        refused: A group that an entry names -> why the observer does not watch it.
    """

    by_group: Mapping[str, Watch]
    refused: Mapping[str, str]


def watches(config: Config, kinds: Mapping[str, GroupKind], settings: ObserverSettings) -> Watches:
    """Returns the groups to watch. The first entry that names a group applies to it.

    Args:
        config: The file.
        kinds: The groups that exist. A group that an entry names without a pattern need not exist.
        settings: The observer's settings.
    """
    named = {entry.group for entry in config.programs if entry.group is not None and not entry.is_pattern}
    found: dict[str, Watch] = {}
    refused: dict[str, str] = {}
    by_queue: dict[str, str] = {}
    for group, entry in _entries(config, sorted(kinds.keys() | named)):
        kind = kinds.get(group, GroupKind.CLASSIC)
        queue = group if entry.is_pattern else entry.queue
        if entry.is_pattern and is_own_group(group):
            continue
        if kind is GroupKind.SHARE:
            refused[group] = "it is a share group: Kafka tells no client how many messages wait in it"
        elif not is_queue_name(queue):
            refused[group] = (
                f"its name is no valid name of a queue, which has {QUEUE_NAME_RULE}. Write an entry for it alone, with "
                "`queue`"
            )
        elif queue in by_queue:
            refused[group] = f"its queue {queue} stands for the group {by_queue[queue]}"
        else:
            by_queue[queue] = group
            found[group] = Watch(kind, queue, _settings(entry, settings), entry.renew_offsets, entry.anchor)
    return Watches(found, refused)


def _entries(config: Config, groups: Iterable[str]) -> Iterator[tuple[str, ProgramEntry]]:
    """Yields each group that an entry names, with the entry. Entries that choose the queue's name precede patterns."""
    found = [(group, entry) for group in groups if (entry := config.entry_of_group(group)) is not None]
    yield from sorted(found, key=lambda each: each[1].is_pattern)


def _settings(entry: ProgramEntry, settings: ObserverSettings) -> Settings:
    interval = entry.commit_interval
    return Settings(
        settings.interval_ms,
        settings.report_interval_ms,
        frozenset(entry.topics),
        OffsetReset(entry.offset_reset),
        None if interval is None else durations.parse(interval).ms,
    )
