"""The sessions of a queue: who waits, and which transactions are open.

A session is known while it waits or has received something in a transaction that is still open. It may fall silent
(killed, cut off), so both count for a lease only, which any record of the session renews.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from streaming.core.settings import (
    LEASE_OVERDUE_MS,
    MARK_LIFETIME_MS,
    MAX_MARKS,
    CoreSettings,
)
from streaming.core.times import FOREVER_MS


@dataclass(slots=True)
class Wait:
    """A wait in RECEIVE or GET CONVERSATION GROUP; it ends by itself at `ends_ms`, FOREVER_MS: by the lease only."""

    where: bool
    ends_ms: int


@dataclass(slots=True)
class Session:
    """One session.

    Attributes:
        last_heard_ms: When its last record came.
        is_lease_extended: Its lease was found overdue and given once more since.
        wait: Its wait, if it waits.
        transactions: Open transactions, transaction_id -> messages received.
    """

    last_heard_ms: int
    is_lease_extended: bool = False
    wait: Wait | None = None
    transactions: dict[str, int] = field(default_factory=dict)


class Sessions:
    """All sessions of one queue, and the marks of transactions that were given back."""

    __slots__ = ("by_id", "marks")

    def __init__(self) -> None:
        self.by_id: dict[str, Session] = {}
        # (session_id, transaction_id) -> (messages, when they were given back); the oldest first
        self.marks: dict[tuple[str, str], tuple[int, int]] = {}

    def heard(self, session_id: str, now_ms: int) -> None:
        """Any record of a session renews its leases."""
        session = self.by_id.get(session_id)
        if session is not None:
            session.last_heard_ms = now_ms
            session.is_lease_extended = False

    def _open(self, session_id: str, now_ms: int) -> Session:
        session = self.by_id.get(session_id)
        if session is None:
            session = self.by_id[session_id] = Session(now_ms)
        return session

    def _close_if_idle(self, session_id: str) -> None:
        session = self.by_id.get(session_id)
        if session is not None and session.wait is None and not session.transactions:
            del self.by_id[session_id]

    def is_waiting(self, session_id: str) -> bool:
        """Whether the session waits."""
        session = self.by_id.get(session_id)
        return session is not None and session.wait is not None

    def waits(self, session_id: str, where: bool, timeout_ms: int | None, now_ms: int) -> None:
        """The session begins to wait, or renews its wait; a renewal without a time-out keeps the one it had."""
        session = self._open(session_id, now_ms)
        if timeout_ms is not None:
            ends_ms = now_ms + timeout_ms
        else:
            ends_ms = session.wait.ends_ms if session.wait else FOREVER_MS
        session.wait = Wait(where, ends_ms)

    def end_wait(self, session_id: str) -> None:
        """The session's wait, if any, has a result."""
        session = self.by_id.get(session_id)
        if session is not None:
            session.wait = None
            self._close_if_idle(session_id)

    def end_all_waits(self) -> None:
        """The queue is OFF: nobody can wait."""
        for session_id in list(self.by_id):
            self.end_wait(session_id)

    def received(self, session_id: str, transaction_id: str, messages: int, now_ms: int) -> None:
        """The session received messages in an open transaction."""
        transactions = self._open(session_id, now_ms).transactions
        transactions[transaction_id] = transactions.get(transaction_id, 0) + messages

    def end_transaction(self, session_id: str, transaction_id: str) -> int:
        """Forgets an open transaction and returns what it received; 0 if it is not known."""
        session = self.by_id.get(session_id)
        messages = session.transactions.pop(transaction_id, 0) if session is not None else 0
        self._close_if_idle(session_id)
        return messages

    def take_mark(self, session_id: str, transaction_id: str) -> int:
        """Takes off the mark of a transaction that was given back; returns its messages, 0 without a mark."""
        return self.marks.pop((session_id, transaction_id), (0, 0))[0]

    def end(self, session_id: str) -> list[int]:
        """The session is gone: returns what each of its open transactions received."""
        session = self.by_id.pop(session_id, None)
        return list(session.transactions.values()) if session is not None else []

    def waiting(self) -> int:
        """How many sessions wait without WHERE."""
        return sum(session.wait is not None and not session.wait.where for session in self.by_id.values())

    def tasks_waiting(self) -> int:
        """How many sessions wait, with WHERE or not: the column tasks_waiting."""
        return sum(session.wait is not None for session in self.by_id.values())

    def end_due(self, now_ms: int, settings: CoreSettings) -> int:
        """Ends the waits and transactions that are due; returns how many messages are given back."""
        given_back = 0
        for session_id, session in list(self.by_id.items()):
            if session.wait is not None and session.wait.ends_ms <= now_ms:
                session.wait = None
            silent_ms = now_ms - session.last_heard_ms
            lapsed_ms = silent_ms - min(_leases_ms(session, settings), default=FOREVER_MS)
            if lapsed_ms > LEASE_OVERDUE_MS and not session.is_lease_extended:
                # Nobody looked at the lease when it ran out, so nobody heard the session either: once more, from now.
                session.last_heard_ms = now_ms
                session.is_lease_extended = True
            elif lapsed_ms >= 0:
                if silent_ms >= settings.session_lease_ms:
                    session.wait = None
                if silent_ms >= settings.transaction_lease_ms:
                    given_back += self._give_back(session_id, session, now_ms)
            self._close_if_idle(session_id)
        self._drop_old_marks(now_ms)
        return given_back

    def _give_back(self, session_id: str, session: Session, now_ms: int) -> int:
        given_back = sum(session.transactions.values())
        for transaction_id, messages in session.transactions.items():
            earlier = self.take_mark(session_id, transaction_id)  # given back before, and then gone on with
            self.marks[session_id, transaction_id] = (earlier + messages, now_ms)
        session.transactions.clear()
        return given_back

    def _drop_old_marks(self, now_ms: int) -> None:
        while self.marks:
            oldest = next(iter(self.marks))
            if len(self.marks) <= MAX_MARKS and now_ms - self.marks[oldest][1] < MARK_LIFETIME_MS:
                return
            del self.marks[oldest]

    def next_due_ms(self, settings: CoreSettings) -> int:
        """The next instant at which a wait or a transaction ends; FOREVER_MS if there is none."""
        due_ms = FOREVER_MS
        for session in self.by_id.values():
            if session.wait is not None:
                due_ms = min(due_ms, session.wait.ends_ms)
            for lease_ms in _leases_ms(session, settings):
                due_ms = min(due_ms, session.last_heard_ms + lease_ms)
        return due_ms


def _leases_ms(session: Session, settings: CoreSettings) -> Iterator[int]:
    """How long the session may be silent, once for each thing it holds."""
    if session.wait is not None:
        yield settings.session_lease_ms
    if session.transactions:
        yield settings.transaction_lease_ms
