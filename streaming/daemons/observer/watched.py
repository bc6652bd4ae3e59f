"""A group that an observer watches, and the sentences that the observer has printed about the group."""

from dataclasses import dataclass, field

from streaming.core.observer.pictures import GroupPicture, GroupState
from streaming.core.observer.watched_group import Found, WatchedGroup
from streaming.daemons.observer.entries import Watch


@dataclass
class Watched:
    """A watched group.

    Attributes:
        watch: The group's settings, and its queue.
        group: The history of the group's pictures.
        picture: The last answer about the group.
        found: The results of the last look; None before the first look.
        had_members: Whether a look has seen a member.
        commit_due_ms: The instant from which the observer may commit for the group.
        told: The answer that was printed last.
        unknown_since_ms: Since when the answer has been unknown; None if the answer is known.
        hints: The other sentences that were printed. Each is printed once.
    """

    watch: Watch
    group: WatchedGroup
    picture: GroupPicture = field(default_factory=lambda: GroupPicture(GroupState.UNKNOWN))
    found: Found | None = None
    had_members: bool = False
    commit_due_ms: int = 0
    told: bool | None = None
    unknown_since_ms: int | None = None
    hints: set[str] = field(default_factory=set)

    @property
    def is_active(self) -> bool:
        """Returns whether the group has members or messages, or too little is known about it."""
        return self.found is None or bool(self.found.members or self.found.waiting) or self.is_unknown

    @property
    def is_unknown(self) -> bool:
        """Returns whether it is unknown whether one more reader would have work."""
        return self.found is None or self.found.verdict.one_more is None

    def topics(self) -> set[str]:
        """Returns the topics that the group is known to read."""
        committed = {topic for topic, _ in self.picture.committed}
        return {*self.picture.subscribed(), *committed, *self.watch.settings.topics}

    def is_new_hint(self, text: str) -> bool:
        """Notes a sentence. Returns whether it is new. Sentences that differ only in numbers count as the same."""
        is_new = not self.takes_back(text)
        self.hints.add(_without_digits(text))
        return is_new

    def takes_back(self, text: str) -> bool:
        """Forgets a sentence that is no longer true. Returns whether it was printed."""
        key = _without_digits(text)
        was_printed = key in self.hints
        self.hints.discard(key)
        return was_printed


def _without_digits(text: str) -> str:
    return "".join(character for character in text if not character.isdigit())
