"""Says how long Kafka keeps the offsets of watched groups without members, and commits offsets for such groups.

A commit for a group that has got members in the meantime does no harm, because Kafka refuses the commit.
"""

from collections.abc import Callable, Mapping

from streaming.core.numbers import plural
from streaming.core.observer.expiry import KeptFrom, kept_in_words
from streaming.core.observer.logs import Logs
from streaming.core.observer.pictures import GroupState, Place
from streaming.daemons.observer.watched import Watched
from streaming.kafka.access import missing_rights
from streaming.kafka.group_commits import Committed
from streaming.kafka.group_looks import GroupLooks, monotonic_ms
from streaming.system import durations

# The pause after a commit that Kafka has not taken, as it may do if members have come or a topic is new.
_AGAIN_AFTER_MS = 5_000
# The pause after a commit for which this user lacks a right.
_DENIED_AFTER_MS = 60_000
# A look must not take long, however many groups there are.
_MAX_A_LOOK = 20


class EmptyGroups:
    """Keeps the offsets of groups without members."""

    def __init__(self, looks: GroupLooks, logs: Logs, hint: Callable[[Watched, str, str], None]) -> None:
        """Stores the parts of the observer that this part uses.

        Args:
            looks: The looks at the groups.
            logs: The logs of the groups' topics.
            hint: Says a sentence about a group, but each sentence only once.
        """
        self._looks = looks
        self._logs = logs
        self._hint = hint

    def look(self, groups: Mapping[str, Watched]) -> None:
        """Says how long Kafka keeps the offsets of groups that have lost their members.

        Commits the offsets of groups whose entries ask for a commit.
        """
        committed = 0
        for name, each in groups.items():
            each.had_members |= bool(each.picture.members)
            if each.picture.state is not GroupState.EMPTY:
                continue
            if each.had_members and each.picture.committed:
                self._tell_how_long(name, each)
            if committed < _MAX_A_LOOK and monotonic_ms() >= each.commit_due_ms:
                committed += self._commit(name, each)

    def _tell_how_long(self, name: str, each: Watched) -> None:
        kept_ms = self._looks.kept_offsets.kept_ms
        kept = None if kept_ms is None else str(durations.of(kept_ms))
        self._hint(each, name, f"has no members any more: {kept_in_words(each.picture.kept_from, kept)}")

    def _commit(self, name: str, each: Watched) -> bool:
        """Commits the offsets that the group's entry demands. Returns whether a request was sent to Kafka."""
        if each.watch.anchors and not each.picture.committed:
            return self._anchor(name, each)
        if each.watch.renews_offsets and each.picture.committed:
            return self._renew(name, each)
        return False

    def _renew(self, name: str, each: Watched) -> bool:
        if each.picture.kept_from is KeptFrom.LAST_MEMBER:
            what = "a group of the classic protocol, whose offsets only a member renews"
            self._hint(each, name, f"`renew_offsets` does nothing for {what}")
            return False
        rest = durations.of(self._looks.kept_offsets.longest_rest_ms)
        done = self._looks.commits.renew(name)
        self._note(name, each, done, rest.ms)
        if done.is_done:
            self._hint(each, name, f"its offsets were committed again, as every {rest} while it has no members")
        return True

    def _anchor(self, name: str, each: Watched) -> bool:
        ends = self._ends(each)
        if not ends:
            return False
        done = self._looks.commits.begin(name, ends)
        self._note(name, each, done, _AGAIN_AFTER_MS)
        if done.is_done:
            topics = ", ".join(sorted(each.watch.settings.topics))
            what = f"the ends of {plural(len(ends), 'partition')} of {topics} were committed for it (`anchor`)"
            self._hint(each, name, f"had committed nothing: {what}")
        return True

    def _ends(self, each: Watched) -> dict[Place, int]:
        """Returns the ends of all partitions that the group reads; empty if an end is not known yet."""
        ends: dict[Place, int] = {}
        for topic in each.watch.settings.topics:
            places = self._logs.partitions_of(topic)
            known = {place: log.end for place in places if (log := self._logs.get(place)) is not None}
            if not known or len(known) < len(places):
                return {}
            ends |= known
        return ends

    def _note(self, name: str, each: Watched, done: Committed, pause_ms: int) -> None:
        if not done.is_done:
            pause_ms = _AGAIN_AFTER_MS if done.denied is None else _DENIED_AFTER_MS
        each.commit_due_ms = monotonic_ms() + pause_ms
        if done.denied is not None:
            self._hint(each, name, f"nothing can be committed for it: {missing_rights([done.denied])}")
