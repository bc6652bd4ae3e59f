"""The sessions of a queue: who waits, and which transactions are open.

A session is known while it waits or has received something in a transaction that is still open. It may fall silent
(killed, cut off), so both count for a lease only, which any record of the session renews.
"""

from dataclasses import dataclass

from streaming.core.activation.events import RefusedEventError
from streaming.core.activation.room import ENDLESS, NUMBER_BYTES, no_room, number_bytes, text_bytes
from streaming.core.activation.settings import (
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


# What a snapshot has of each besides texts, at most.
_SESSION_BYTES = NUMBER_BYTES + 6
_WAIT_BYTES = 2 * NUMBER_BYTES + 3
_TRANSACTION_BYTES = 1  # and its number of messages
_MARK_BYTES = 2 * NUMBER_BYTES + 1


class Sessions:
    """All sessions of one queue, and the marks of transactions that were given back.

    Attributes:
        room: What is left of the shard's room.
        by_id: The sessions that wait or have a transaction open.
        open_transactions: How many they have.
        marks: (session_id, transaction_id) -> (messages, when they were given back); the oldest first.
    """

    __slots__ = ("by_id", "marks", "open_transactions", "room")

    def __init__(self) -> None:
        self.room = ENDLESS
        self.by_id: dict[str, Session] = {}
        self.open_transactions = 0
        self.marks: dict[tuple[str, str], tuple[int, int]] = {}

    def heard(self, session_id: str, now_ms: int) -> None:
        """Any record of a session renews its leases."""
        session = self.by_id.get(session_id)
        if session is not None:
            session.transactions_lease.renew(now_ms)
            if session.wait is not None:
                session.wait.lease.renew(now_ms)

    def received_or_waits(self, session_id: str, is_wait: bool, now_ms: int) -> None:
        """A RECEIVE renews the session's leases and ends its wait, unless it begins to wait."""
        if session_id in self.by_id:
            self.heard(session_id, now_ms)
            if not is_wait:
                self.end_wait(session_id)

    def require_room(self, session_id: str, transaction_id: str | None, messages: int, begins_to_wait: bool) -> None:
        """Makes sure that there is room for a session that begins to wait or has received something in a transaction.

        Args:
            session_id: The session.
            transaction_id: The transaction in which it has received messages, if any.
            messages: How many.
            begins_to_wait: Whether it begins to wait, or goes on with it.

        Raises:
            RefusedEventError: There are too many sessions, or too many open transactions, to remember this one.
        """
        session = self.by_id.get(session_id)
        if session is None and len(self.by_id) >= MAX_SESSIONS:
            raise RefusedEventError(f"too many sessions: {MAX_SESSIONS} of the queue wait or have a transaction open")
        if transaction_id is not None:
            before = None if session is None else session.transactions.get(transaction_id)
            if before is None and self.open_transactions >= MAX_TRANSACTIONS:
                raise RefusedEventError(f"too many transactions: {MAX_TRANSACTIONS} of the queue are open")
            if self.room.is_used_up and (before is None or _sum_bytes(before, messages) > number_bytes(before)):
                raise no_room("transactions")
        elif begins_to_wait and self.room.is_used_up and (session is None or session.wait is None):
            raise no_room("sessions")

    def _open(self, session_id: str, now_ms: int) -> Session:
        session = self.by_id.get(session_id)
        if session is None:
            session = self.by_id[session_id] = Session(None, {}, Lease(now_ms))
            if self.room.is_counted:
                self.room.take(_SESSION_BYTES + text_bytes(session_id))
        return session

    def _close_if_idle(self, session_id: str) -> None:
        session = self.by_id.get(session_id)
        if session is not None and session.wait is None and not session.transactions:
            del self.by_id[session_id]
            if self.room.is_counted:
                self.room.take(-_SESSION_BYTES - text_bytes(session_id))

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
        if session.wait is None:
            self.room.take(_WAIT_BYTES)
        session.wait = Wait(where, ends_ms, Lease(now_ms))

    def end_wait(self, session_id: str) -> None:
        """The wait of a session that is known, if it waits, has a result."""
        self._forget_wait(self.by_id[session_id])
        self._close_if_idle(session_id)

    def _forget_wait(self, session: Session) -> None:
        if session.wait is not None:
            session.wait = None
            self.room.take(-_WAIT_BYTES)

    def end_all_waits(self) -> None:
        """The queue is OFF: nobody can wait."""
        for session_id in list(self.by_id):
            self.end_wait(session_id)

    def received(self, session_id: str, transaction_id: str, messages: int, now_ms: int) -> None:
        """The session received messages in an open transaction."""
        transactions = self._open(session_id, now_ms).transactions
        before = transactions.get(transaction_id)
        received = messages if before is None else min(before + messages, MAX_MESSAGES)
        transactions[transaction_id] = received
        if before is None:
            self.open_transactions += 1
        if self.room.is_counted:
            before_bytes = 0 if before is None else _transaction_bytes(transaction_id, before)
            self.room.take(_transaction_bytes(transaction_id, received) - before_bytes)

    def end_transaction(self, session_id: str, transaction_id: str) -> int:
        """Forgets an open transaction and returns what it received; 0 if it is not known."""
        session = self.by_id.get(session_id)
        if session is None or transaction_id not in session.transactions:
            return 0
        messages = session.transactions.pop(transaction_id)
        self._ended(transaction_id, messages)
        self._close_if_idle(session_id)
        return messages

    def _ended(self, transaction_id: str, messages: int) -> None:
        """An open transaction is open no more."""
        self.open_transactions -= 1
        if self.room.is_counted:
            self.room.take(-_transaction_bytes(transaction_id, messages))

    def take_mark(self, session_id: str, transaction_id: str, now_ms: int) -> int:
        """Takes off the mark of a transaction that was given back; returns its messages, 0 without a valid mark."""
        key = session_id, transaction_id
        if key not in self.marks:
            return 0
        messages, given_back_ms = self._drop_mark(key)
        return messages if now_ms - given_back_ms < MARK_LIFETIME_MS else 0

    def _drop_mark(self, key: tuple[str, str]) -> tuple[int, int]:
        if self.room.is_counted:
            self.room.take(-_mark_bytes(key))
        return self.marks.pop(key)

    def end(self, session_id: str) -> list[int]:
        """The session is gone: returns what each of its open transactions received."""
        session = self.by_id.get(session_id)
        if session is None:
            return []
        received = list(session.transactions.values())
        for transaction_id, messages in session.transactions.items():
            self._ended(transaction_id, messages)
        session.transactions.clear()
        self.end_wait(session_id)
        return received

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
                self._forget_wait(session)
            if session.transactions and session.transactions_lease.has_ended(now_ms, settings.transaction_lease_ms):
                given_back += self._give_back(session_id, session, now_ms)
            self._close_if_idle(session_id)
        self._drop_old_marks(now_ms)
        return given_back

    def _give_back(self, session_id: str, session: Session, now_ms: int) -> int:
        given_back = sum(session.transactions.values())
        for transaction_id, messages in session.transactions.items():
            self._ended(transaction_id, messages)
            earlier = self.take_mark(session_id, transaction_id, now_ms)  # given back before, and then gone on with
            self._mark((session_id, transaction_id), min(earlier + messages, MAX_MESSAGES), now_ms)
        session.transactions.clear()
        return given_back

    def _mark(self, key: tuple[str, str], messages: int, now_ms: int) -> None:
        """Marks a transaction that was given back, if there is room.

        A session has its id once for all its open transactions, but each mark has it: marks take a hundred times the
        room of small transactions. Without its mark a COMMIT that comes late takes nothing off, so the count is too
        high until a reader reports how much is unread.
        """
        if self.room.is_used_up:
            return
        if len(self.marks) >= MAX_MARKS:
            self._drop_mark(next(iter(self.marks)))
        self.marks[key] = (messages, now_ms)
        if self.room.is_counted:
            self.room.take(_mark_bytes(key))

    def _drop_old_marks(self, now_ms: int) -> None:
        while self.marks:
            oldest = next(iter(self.marks))
            if now_ms - self.marks[oldest][1] < MARK_LIFETIME_MS:
                return
            self._drop_mark(oldest)

    def next_due_ms(self, settings: CoreSettings) -> int:
        """The next instant at which a wait or a transaction ends; FOREVER_MS if there is none."""
        due_ms = FOREVER_MS
        for session in self.by_id.values():
            if session.wait is not None:
                due_ms = min(due_ms, session.wait.ends_ms, session.wait.lease.from_ms + settings.session_lease_ms)
            if session.transactions:
                due_ms = min(due_ms, session.transactions_lease.from_ms + settings.transaction_lease_ms)
        return due_ms


def _sum_bytes(before: int, messages: int) -> int:
    """Returns what the number of a transaction's messages takes after more have been received."""
    return number_bytes(min(before + messages, MAX_MESSAGES))


def _transaction_bytes(transaction_id: str, messages: int) -> int:
    """Returns what an open transaction takes in a snapshot, at most."""
    return _TRANSACTION_BYTES + number_bytes(messages) + text_bytes(transaction_id)


def _mark_bytes(key: tuple[str, str]) -> int:
    """Returns what a mark takes in a snapshot, at most."""
    return _MARK_BYTES + text_bytes(key[0]) + text_bytes(key[1])
