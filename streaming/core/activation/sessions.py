"""The sessions of a queue: their waits and their open transactions.

A session is in memory while it waits, or while a transaction in which it received messages is open. Its reader may be
killed or disconnected without a report. So waits and transactions last only for a lease, which any record of the
session renews.
"""

from dataclasses import dataclass

from streaming.core.activation.events import RefusedEventError
from streaming.core.activation.room import ENDLESS, NUMBER_BYTES, no_room, number_bytes, text_bytes
from streaming.core.activation.session_ids import program_of
from streaming.core.activation.settings import (
    LEASE_OVERDUE_MS,
    MAX_MESSAGES,
    MAX_SESSIONS,
    MAX_TRANSACTIONS,
    SILENT_MS,
    CoreSettings,
)
from streaming.core.activation.transaction_marks import Marks
from streaming.core.times import FOREVER_MS, NEVER_MS


@dataclass(slots=True)
class Lease:
    """The start of a session's or task's lease, and whether the lease was extended because it was overdue."""

    from_ms: int
    is_extended: bool = False

    def renew(self, now_ms: int) -> None:
        """Starts the lease again, after a report."""
        self.from_ms = now_ms
        self.is_extended = False

    def has_ended(self, now_ms: int, lease_ms: int) -> bool:
        """Returns whether the lease is over.

        A lease that is overdue by more than LEASE_OVERDUE_MS is extended once: the monitor was down and saw no reports.
        """
        overdue_ms = now_ms - self.from_ms - lease_ms
        if overdue_ms > LEASE_OVERDUE_MS and not self.is_extended:
            self.from_ms = now_ms
            self.is_extended = True
            return False
        return overdue_ms >= 0


@dataclass(slots=True)
class Wait:
    """A wait in RECEIVE or GET CONVERSATION GROUP. If `ends_ms` is FOREVER_MS, only the lease ends the wait."""

    where: bool
    ends_ms: int
    lease: Lease


@dataclass(slots=True)
class Session:
    """A session.

    Attributes:
        wait: The session's wait, if the session waits.
        transactions: Open transactions, transaction_id -> number of messages received.
        transactions_lease: The lease of all open transactions.
        rollbacks_known: `PoisonCount.counted` when the session last received messages in a transaction.
    """

    wait: Wait | None
    transactions: dict[str, int]
    transactions_lease: Lease
    rollbacks_known: int = 0


# The most bytes that a session, a wait and a transaction take in a snapshot, without their texts.
_SESSION_BYTES = 2 * NUMBER_BYTES + 6
_WAIT_BYTES = 2 * NUMBER_BYTES + 3
_TRANSACTION_BYTES = 1  # without its number of messages


class Sessions:
    """All sessions of one queue, and the marks of transactions that were given back.

    Attributes:
        room: The remaining room of the shard.
        by_id: The sessions that wait or have an open transaction.
        open_transactions: The number of open transactions of all sessions.
        marks: The marks of transactions that were given back.
    """

    def __init__(self) -> None:
        self.room = ENDLESS
        self.by_id: dict[str, Session] = {}
        # The id of a program -> the ids of its sessions in `by_id`, in order, without a session that has the same id.
        self._of_program: dict[str, dict[str, None]] = {}
        self.open_transactions = 0
        self.marks = Marks()

    def restore(self, by_id: dict[str, Session]) -> None:
        """Restores the sessions of a snapshot."""
        self.by_id = by_id
        self.open_transactions = sum(len(session.transactions) for session in by_id.values())
        for session_id in by_id:
            self._note_program(session_id)

    def _note_program(self, session_id: str) -> None:
        program_id = program_of(session_id)
        if program_id != session_id:
            self._of_program.setdefault(program_id, {})[session_id] = None

    def _forget_program(self, session_id: str) -> None:
        program_id = program_of(session_id)
        if program_id != session_id:
            sessions = self._of_program[program_id]
            del sessions[session_id]
            if not sessions:
                del self._of_program[program_id]

    def heard(self, session_id: str, now_ms: int) -> None:
        """Renews the leases of a session that has sent a record."""
        session = self.by_id.get(session_id)
        if session is not None:
            session.transactions_lease.renew(now_ms)
            if session.wait is not None:
                session.wait.lease.renew(now_ms)

    def received_or_waits(self, session_id: str, is_wait: bool, now_ms: int) -> None:
        """Renews the leases of a session that has executed RECEIVE. Ends its wait unless the RECEIVE waits."""
        if session_id in self.by_id:
            self.heard(session_id, now_ms)
            if not is_wait:
                self.end_wait(session_id)

    def require_room(self, session_id: str, transaction_id: str | None, messages: int, begins_to_wait: bool) -> None:
        """Checks that there is room for a session that begins to wait or has received messages in a transaction.

        Args:
            session_id: The session.
            transaction_id: The transaction in which the session has received messages, if there is one.
            messages: The number of messages received.
            begins_to_wait: Whether the session begins or continues to wait.

        Raises:
            RefusedEventError: There are already too many sessions or open transactions, or the room is used up.
        """
        session = self.by_id.get(session_id)
        if session is None and len(self.by_id) >= MAX_SESSIONS:
            raise RefusedEventError(
                f"too many sessions: {MAX_SESSIONS} already wait or have an open transaction in this queue"
            )
        if transaction_id is not None:
            before = None if session is None else session.transactions.get(transaction_id)
            if before is None and self.open_transactions >= MAX_TRANSACTIONS:
                raise RefusedEventError(f"too many transactions: {MAX_TRANSACTIONS} are already open in this queue")
            if self.room.is_used_up and (before is None or _sum_bytes(before, messages) > number_bytes(before)):
                raise no_room("transactions")
        elif begins_to_wait and self.room.is_used_up and (session is None or session.wait is None):
            raise no_room("sessions")

    def _open(self, session_id: str, now_ms: int) -> Session:
        session = self.by_id.get(session_id)
        if session is None:
            session = self.by_id[session_id] = Session(None, {}, Lease(now_ms))
            self._note_program(session_id)
            self.room.take(_SESSION_BYTES + text_bytes(session_id))
        return session

    def _close_if_idle(self, session_id: str) -> None:
        session = self.by_id.get(session_id)
        if session is not None and session.wait is None and not session.transactions:
            del self.by_id[session_id]
            self._forget_program(session_id)
            self.room.take(-_SESSION_BYTES - text_bytes(session_id))

    def is_waiting(self, session_id: str, now_ms: int) -> bool:
        """Returns whether the session waits. A wait ends with its time-out, even before `end_due` removes the wait."""
        session = self.by_id.get(session_id)
        return session is not None and session.wait is not None and session.wait.ends_ms > now_ms

    def waits(self, session_id: str, where: bool, timeout_ms: int | None, now_ms: int) -> None:
        """Starts or renews the session's wait. A renewal without a time-out keeps the previous time-out."""
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
        """Ends the wait, if there is one, of a session in `by_id`."""
        self._forget_wait(self.by_id[session_id])
        self._close_if_idle(session_id)

    def _forget_wait(self, session: Session) -> None:
        if session.wait is not None:
            session.wait = None
            self.room.take(-_WAIT_BYTES)

    def end_all_waits(self) -> None:
        """Ends the waits of all sessions, because the queue is OFF."""
        for session_id in list(self.by_id):
            self.end_wait(session_id)

    def received(self, session_id: str, transaction_id: str, messages: int, rollbacks_known: int, now_ms: int) -> None:
        """Adds messages that the session received to one of its open transactions."""
        session = self._open(session_id, now_ms)
        session.rollbacks_known = rollbacks_known
        transactions = session.transactions
        before = transactions.get(transaction_id)
        received = messages if before is None else min(before + messages, MAX_MESSAGES)
        transactions[transaction_id] = received
        if before is None:
            self.open_transactions += 1
        before_bytes = 0 if before is None else _transaction_bytes(transaction_id, before)
        self.room.take(_transaction_bytes(transaction_id, received) - before_bytes)

    def _ended_with(self, session_id: str) -> dict[str, Session]:
        """Returns the session with this id, and the sessions of the program with this id."""
        ids = [session_id, *self._of_program.get(session_id, ())]
        return {each: self.by_id[each] for each in ids if each in self.by_id}

    def rollbacks_known(self, session_id: str) -> int:
        """Returns the greatest `rollbacks_known` of the session and of the program's sessions; 0 without a session."""
        return max([session.rollbacks_known for session in self._ended_with(session_id).values()], default=0)

    def end_transaction(self, session_id: str, transaction_id: str) -> int:
        """Removes an open transaction. Returns the number of its messages; 0 if the transaction is unknown."""
        session = self.by_id.get(session_id)
        if session is None or transaction_id not in session.transactions:
            return 0
        messages = session.transactions.pop(transaction_id)
        self._ended(transaction_id, messages)
        self._close_if_idle(session_id)
        return messages

    def _ended(self, transaction_id: str, messages: int) -> None:
        self.open_transactions -= 1
        self.room.take(-_transaction_bytes(transaction_id, messages))

    def end(self, session_id: str, now_ms: int) -> int:
        """Removes a session that has ended, and the sessions of the program with this id.

        Their transactions are given back and marked, because another reader with the same id may still commit.

        Returns:
            The number of messages given back.
        """
        given_back = 0
        for ended_id, session in self._ended_with(session_id).items():
            given_back += self._give_back(ended_id, session, now_ms)
            self.end_wait(ended_id)
        return given_back

    def waiting(self) -> int:
        """Returns the number of sessions that wait without WHERE."""
        sessions = self.by_id.values()
        return len([session for session in sessions if session.wait is not None and not session.wait.where])

    def tasks_waiting(self) -> int:
        """Returns the number of sessions that wait with or without WHERE: the column tasks_waiting."""
        return len([session for session in self.by_id.values() if session.wait is not None])

    def last_wait_end_ms(self, now_ms: int) -> int:
        """Returns the end of the last wait without WHERE whose result has not come yet; NEVER_MS: no such wait."""
        ended_ms = NEVER_MS
        for session in self.by_id.values():
            wait = session.wait
            if wait is not None and not wait.where and wait.ends_ms <= min(now_ms, wait.lease.from_ms + SILENT_MS - 1):
                ended_ms = max(ended_ms, wait.ends_ms)
        return ended_ms

    def end_due(self, now_ms: int, settings: CoreSettings) -> int:
        """Ends the waits and transactions that are due. Returns the number of messages given back."""
        given_back = 0
        if not (self.by_id or self.marks.by_key):  # the usual case
            return given_back
        for session_id, session in list(self.by_id.items()):
            wait = session.wait
            if wait is not None and (wait.ends_ms <= now_ms or wait.lease.has_ended(now_ms, settings.session_lease_ms)):
                self._forget_wait(session)
            if session.transactions and session.transactions_lease.has_ended(now_ms, settings.transaction_lease_ms):
                given_back += self._give_back(session_id, session, now_ms)
            self._close_if_idle(session_id)
        self.marks.drop_old(now_ms)
        return given_back

    def _give_back(self, session_id: str, session: Session, now_ms: int) -> int:
        given_back = sum(session.transactions.values())
        for transaction_id, messages in session.transactions.items():
            has_room = not self.room.is_used_up  # before the transaction frees its own bytes
            self._ended(transaction_id, messages)
            self.marks.add((session_id, transaction_id), messages, has_room, now_ms)
        session.transactions.clear()
        return given_back

    def next_due_ms(self, settings: CoreSettings) -> int:
        """Returns the next instant at which a wait or a transaction ends; FOREVER_MS if there is none."""
        due_ms = FOREVER_MS
        for session in self.by_id.values():
            if session.wait is not None:
                due_ms = min(due_ms, session.wait.ends_ms, session.wait.lease.from_ms + settings.session_lease_ms)
            if session.transactions:
                due_ms = min(due_ms, session.transactions_lease.from_ms + settings.transaction_lease_ms)
        return due_ms


def _sum_bytes(before: int, messages: int) -> int:
    """Returns how many bytes a transaction's count of messages takes, after more messages were received."""
    return number_bytes(min(before + messages, MAX_MESSAGES))


def _transaction_bytes(transaction_id: str, messages: int) -> int:
    """Returns the largest number of bytes that an open transaction takes in a snapshot."""
    return _TRANSACTION_BYTES + number_bytes(messages) + text_bytes(transaction_id)
