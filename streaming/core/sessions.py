"""The sessions of a queue: who waits, and which transactions are open.

A session is known while it waits or has received something in a transaction that is still open. It may fall silent
(killed, cut off), so both count for a lease only, which any record of the session renews.
"""

from dataclasses import dataclass

from streaming.core.events import RefusedEventError
from streaming.core.settings import (
    LEASE_OVERDUE_MS,
    MARK_LIFETIME_MS,
    MAX_MARKS,
    MAX_MESSAGES,
    MAX_SESSIONS,
    MAX_TRANSACTIONS,
    CoreSettings,
)
from streaming.core.times import FOREVER_MS


@dataclass(slots=True)
class Lease:
    """Since when something of a silent session counts, and whether it was found overdue and given once more."""

    from_ms: int
    is_extended: bool = False

    def renew(self, now_ms: int) -> None:
        """The session was heard."""
        self.from_ms = now_ms
        self.is_extended = False

    def has_ended(self, now_ms: int, lease_ms: int) -> bool:
        """Whether it is over; overdue for long, it is given once more: nobody looked, so nobody heard the session."""
        overdue_ms = now_ms - self.from_ms - lease_ms
        if overdue_ms > LEASE_OVERDUE_MS and not self.is_extended:
            self.from_ms = now_ms
            self.is_extended = True
            return False
        return overdue_ms >= 0


@dataclass(slots=True)
class Wait:
    """A wait in RECEIVE or GET CONVERSATION GROUP; it ends by itself at `ends_ms`, FOREVER_MS: by the lease only."""

    where: bool
    ends_ms: int
    lease: Lease


@dataclass(slots=True)
class Session:
    """One session.

    Attributes:
        wait: Its wait, if it waits.
        transactions: Open transactions, transaction_id -> messages received.
        transactions_lease: How long they stay open.
    """

    wait: Wait | None
    transactions: dict[str, int]
    transactions_lease: Lease


class Sessions:
    """All sessions of one queue, and the marks of transactions that were given back."""

    __slots__ = ("by_id", "marks", "open_transactions")

    def __init__(self) -> None:
        self.by_id: dict[str, Session] = {}
        self.open_transactions = 0
        # (session_id, transaction_id) -> (messages, when they were given back); the oldest first
        self.marks: dict[tuple[str, str], tuple[int, int]] = {}

    def heard(self, session_id: str, now_ms: int) -> None:
        """Any record of a session renews its leases."""
        session = self.by_id.get(session_id)
        if session is not None:
            session.transactions_lease.renew(now_ms)
            if session.wait is not None:
                session.wait.lease.renew(now_ms)

    def received_or_waits(self, session_id: str, transaction_id: str | None, is_wait: bool, now_ms: int) -> None:
        """A RECEIVE renews the session's leases and ends its wait, unless it begins to wait.

        Args:
            session_id: The session.
            transaction_id: The transaction in which it has received messages, if any.
            is_wait: Whether it begins to wait.
            now_ms: The time.

        Raises:
            RefusedEventError: There are too many sessions, or too many open transactions, to remember this one.
        """
        if is_wait or transaction_id is not None:
            self._require_room(session_id, transaction_id)
        if session_id in self.by_id:
            self.heard(session_id, now_ms)
            if not is_wait:
                self.end_wait(session_id)

    def _require_room(self, session_id: str, transaction_id: str | None) -> None:
        session = self.by_id.get(session_id)
        if session is None and len(self.by_id) >= MAX_SESSIONS:
            raise RefusedEventError(f"too many sessions: {MAX_SESSIONS} of the queue wait or have a transaction open")
        if transaction_id is None or (session is not None and transaction_id in session.transactions):
            return
        if self.open_transactions >= MAX_TRANSACTIONS:
            raise RefusedEventError(f"too many transactions: {MAX_TRANSACTIONS} of the queue are open")

    def _open(self, session_id: str, now_ms: int) -> Session:
        return self.by_id.setdefault(session_id, Session(None, {}, Lease(now_ms)))

    def _close_if_idle(self, session_id: str) -> None:
        session = self.by_id.get(session_id)
        if session is not None and session.wait is None and not session.transactions:
            del self.by_id[session_id]

    def is_waiting(self, session_id: str, now_ms: int) -> bool:
        """Whether the session waits; a wait whose time is over has ended, though nobody has looked yet."""
        session = self.by_id.get(session_id)
        return session is not None and session.wait is not None and session.wait.ends_ms > now_ms

    def waits(self, session_id: str, where: bool, timeout_ms: int | None, now_ms: int) -> None:
        """The session begins to wait, or renews its wait; a renewal without a time-out keeps the one it had."""
        ends_ms = FOREVER_MS
        session = self._open(session_id, now_ms)
        if timeout_ms is not None:
            ends_ms = now_ms + timeout_ms
        elif session.wait is not None and self.is_waiting(session_id, now_ms):
            ends_ms = session.wait.ends_ms
        session.wait = Wait(where, ends_ms, Lease(now_ms))

    def end_wait(self, session_id: str) -> None:
        """The wait of a session that is known, if it waits, has a result."""
        self.by_id[session_id].wait = None
        self._close_if_idle(session_id)

    def end_all_waits(self) -> None:
        """The queue is OFF: nobody can wait."""
        for session_id in list(self.by_id):
            self.end_wait(session_id)

    def received(self, session_id: str, transaction_id: str, messages: int, now_ms: int) -> None:
        """The session received messages in an open transaction."""
        transactions = self._open(session_id, now_ms).transactions
        self.open_transactions += transaction_id not in transactions
        transactions[transaction_id] = min(transactions.get(transaction_id, 0) + messages, MAX_MESSAGES)

    def end_transaction(self, session_id: str, transaction_id: str) -> int:
        """Forgets an open transaction and returns what it received; 0 if it is not known."""
        session = self.by_id.get(session_id)
        if session is None or transaction_id not in session.transactions:
            return 0
        messages = session.transactions.pop(transaction_id)
        self.open_transactions -= 1
        self._close_if_idle(session_id)
        return messages

    def take_mark(self, session_id: str, transaction_id: str, now_ms: int) -> int:
        """Takes off the mark of a transaction that was given back; returns its messages, 0 without a valid mark."""
        messages, given_back_ms = self.marks.pop((session_id, transaction_id), (0, now_ms))
        return messages if now_ms - given_back_ms < MARK_LIFETIME_MS else 0

    def end(self, session_id: str) -> list[int]:
        """The session is gone: returns what each of its open transactions received."""
        session = self.by_id.pop(session_id, None)
        if session is None:
            return []
        self.open_transactions -= len(session.transactions)
        return list(session.transactions.values())

    def waiting(self) -> int:
        """How many sessions wait without WHERE."""
        if not self.by_id:  # as in most queues at most times
            return 0
        return sum(session.wait is not None and not session.wait.where for session in self.by_id.values())

    def tasks_waiting(self) -> int:
        """How many sessions wait, with WHERE or not: the column tasks_waiting."""
        if not self.by_id:
            return 0
        return sum(session.wait is not None for session in self.by_id.values())

    def end_due(self, now_ms: int, settings: CoreSettings) -> int:
        """Ends the waits and transactions that are due; returns how many messages are given back."""
        given_back = 0
        if not (self.by_id or self.marks):  # as in most queues at most times
            return given_back
        for session_id, session in list(self.by_id.items()):
            wait = session.wait
            if wait is not None and (wait.ends_ms <= now_ms or wait.lease.has_ended(now_ms, settings.session_lease_ms)):
                session.wait = None
            if session.transactions and session.transactions_lease.has_ended(now_ms, settings.transaction_lease_ms):
                given_back += self._give_back(session_id, session, now_ms)
            self._close_if_idle(session_id)
        self._drop_old_marks(now_ms)
        return given_back

    def _give_back(self, session_id: str, session: Session, now_ms: int) -> int:
        given_back = sum(session.transactions.values())
        for transaction_id, messages in session.transactions.items():
            earlier = self.take_mark(session_id, transaction_id, now_ms)  # given back before, and then gone on with
            self.marks[session_id, transaction_id] = (min(earlier + messages, MAX_MESSAGES), now_ms)
        self.open_transactions -= len(session.transactions)
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
                due_ms = min(due_ms, session.wait.ends_ms, session.wait.lease.from_ms + settings.session_lease_ms)
            if session.transactions:
                due_ms = min(due_ms, session.transactions_lease.from_ms + settings.transaction_lease_ms)
        return due_ms
