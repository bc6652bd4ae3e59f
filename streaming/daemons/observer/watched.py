"""A group that an observer watches, and what it has said of it."""

from dataclasses import dataclass, field

from streaming.core.observer.pictures import GroupPicture, GroupState
from streaming.core.observer.watched_group import Found, WatchedGroup
from streaming.daemons.observer.entries import Watch


@dataclass
class Watched:
    """A group.

    Attributes:
        watch: The group's settings, and its queue.
        group: What was seen of it.
        picture: The last answer about it.
        found: What the last look has found; None: there was none.
        had_members: Whether some look has seen a member.
        commit_due_ms: From when on something may be committed for it.
        told: The answer that was told last.
        unknown_since_ms: Since when the answer is unknown; None if it is known, or that was told.
        hints: The other sentences that were told, each once.
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
        """Returns whether its members may commit something, or a message waits in it."""
        return self.found is None or bool(self.found.members or self.found.waiting) or self.is_unknown

    @property
    def is_unknown(self) -> bool:
        """Returns whether it is not known whether one more reader would have work."""
        return self.found is None or self.found.verdict.one_more is None

    def topics(self) -> set[str]:
        """Returns the topics whose logs matter."""
        committed = {topic for topic, _ in self.picture.committed}
        return {*self.picture.subscribed(), *committed, *self.watch.settings.topics}

    def is_new_hint(self, text: str) -> bool:
        """Notes a sentence; returns whether it was not told before. What differs in numbers is the same."""
        key = "".join(character for character in text if not character.isdigit())
        if key in self.hints:
            return False
        self.hints.add(key)
        return True
