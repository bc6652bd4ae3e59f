"""The marks of transactions that were given back because their lease or their session has ended.

Such a transaction may still be open, because its reader was only silent. Its messages are unread again, so its COMMIT
subtracts them from the count. A reader that reports `unread` does not count the messages of open transactions. After
such a report the count lacks these messages. Only the transaction's ROLLBACK, or the end of its session, adds them.
"""

from dataclasses import dataclass

from streaming.core.activation.room import ENDLESS, NUMBER_BYTES, text_bytes
from streaming.core.activation.session_ids import program_of
from streaming.core.activation.settings import MARK_LIFETIME_MS, MAX_MARKS, MAX_MESSAGES
from streaming.core.times import NEVER_MS

# session_id, transaction_id
Key = tuple[str, str]

# The most bytes of a mark in a snapshot, without its texts.
_MARK_BYTES = 3 * NUMBER_BYTES + 1


@dataclass(slots=True)
class Mark:
    """The mark of a transaction.

    Attributes:
        messages: The number of messages that the transaction has received.
        given_back_ms: When messages were last given back.
        missing: The number of these messages that the count of unread messages lacks.
    """

    messages: int
    given_back_ms: int
    missing: int = 0


class Marks:
    """All marks of one queue.

    Attributes:
        room: The remaining room of the shard.
        by_key: The marks; the oldest first.
    """

    def __init__(self) -> None:
        self.room = ENDLESS
        self.by_key: dict[Key, Mark] = {}
        # The marks with messages that the count includes.
        self._counted: dict[Key, None] = {}
        # A session or a program -> its marks with messages that the count lacks.
        self._missing: dict[str, dict[Key, None]] = {}

    def restore(self, by_key: dict[Key, Mark]) -> None:
        """Restores the marks of a snapshot."""
        self.by_key = by_key
        for key, mark in by_key.items():
            if mark.missing:
                self._note_missing(key)
            if mark.missing < mark.messages:
                self._counted[key] = None

    def newest_ms(self) -> int:
        """Returns when a transaction was last given back, or NEVER_MS."""
        return next(reversed(self.by_key.values())).given_back_ms if self.by_key else NEVER_MS

    def add(self, key: Key, messages: int, has_room: bool, now_ms: int) -> None:
        """Marks messages that were given back. Without room, no transaction gets a new mark.

        A session stores its id once for all its open transactions, but each mark stores the id again. So marks can take
        a hundred times the room of small transactions. Without its mark, a late COMMIT subtracts nothing, so the count
        is too high until a reader reports `unread`.
        """
        self.drop_old(now_ms)
        mark = self.by_key.pop(key, None)
        if mark is None:
            if not has_room:
                return
            if len(self.by_key) >= MAX_MARKS:
                self._drop(next(iter(self.by_key)))
            mark = Mark(0, now_ms)
            self.room.take(_size_bytes(key))
        mark.messages = min(mark.messages + messages, MAX_MESSAGES)
        mark.given_back_ms = now_ms
        self.by_key[key] = mark
        self._counted[key] = None

    def take(self, key: Key, now_ms: int) -> Mark | None:
        """Removes and returns a transaction's mark; returns None without a mark."""
        self.drop_old(now_ms)
        return self._drop(key) if key in self.by_key else None

    def miss_all(self, now_ms: int) -> None:
        """Notes that the count lacks the messages of all marks, because a reader has reported `unread`."""
        self.drop_old(now_ms)
        for key in self._counted:
            mark = self.by_key[key]
            mark.missing = mark.messages
            self._note_missing(key)
        self._counted.clear()

    def end(self, session_id: str, now_ms: int) -> int:
        """Returns how many messages of an ended session or program the count lacks. These messages are unread again."""
        self.drop_old(now_ms)
        messages = 0
        for key in list(self._missing.get(session_id, ())):
            mark = self.by_key[key]
            messages += mark.missing
            mark.missing = 0
            self._forget_missing(key)
            self._counted[key] = None
        return messages

    def drop_old(self, now_ms: int) -> None:
        """Removes the marks whose time is over."""
        while self.by_key:
            oldest = next(iter(self.by_key))
            if now_ms - self.by_key[oldest].given_back_ms < MARK_LIFETIME_MS:
                return
            self._drop(oldest)

    def _drop(self, key: Key) -> Mark:
        self.room.take(-_size_bytes(key))
        self._forget_missing(key)
        self._counted.pop(key, None)
        return self.by_key.pop(key)

    def _note_missing(self, key: Key) -> None:
        for owner in _owners(key):
            self._missing.setdefault(owner, {})[key] = None

    def _forget_missing(self, key: Key) -> None:
        for owner in _owners(key):
            keys = self._missing.get(owner)
            if keys is not None:
                keys.pop(key, None)
                if not keys:
                    del self._missing[owner]


def _size_bytes(key: Key) -> int:
    """Returns the largest number of bytes that a mark takes in a snapshot."""
    return _MARK_BYTES + text_bytes(key[0]) + text_bytes(key[1])


def _owners(key: Key) -> set[str]:
    """Returns the session of a transaction, and the session's program. The end of either ends the transaction."""
    return {key[0], program_of(key[0])}
