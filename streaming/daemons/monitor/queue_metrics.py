"""What the monitors view tells: how many queues are in which state, and which wait for a reader in vain."""

import sys
from collections import Counter
from datetime import datetime
from threading import Lock
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from streaming.core.activation.queue_monitor import State
from streaming.wire.decoding import Int64, decode_json
from streaming.wire.output_records import MonitorState


class _MonitorRow(Struct):
    """The fields of a record of queue-monitors that are needed here."""

    state: MonitorState | None
    unread_messages: Int64
    update_time: Annotated[datetime, Meta(tz=True)]


_decoder = msgspec.json.Decoder(_MonitorRow)


class QueuesByState:
    """The queues of the monitors view, counted as its records come; read by another thread.

    A queue waits in vain while its state is NOTIFIED and it has unread messages. The time-out's notifications do not
    end that; a RECEIVE does. One that came and was answered by a new notification within one batch can be told only by
    what it took away.

    Attributes:
        is_complete: Whether the view was read to its end; until then the counts mean nothing.
    """

    def __init__(self) -> None:
        self.is_complete = False
        self._lock = Lock()
        self._states: dict[bytes, str] = {}
        self._counts: Counter[str] = Counter()
        # key -> (unread messages, since when by the wall clock in seconds)
        self._waiting: dict[bytes, tuple[int, float]] = {}

    def clear(self) -> None:
        """Forgets all, because the view is read again."""
        self.is_complete = False
        with self._lock:
            self._states.clear()
            self._counts.clear()
            self._waiting.clear()

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Takes over a record of queue-monitors; None is a tombstone.

        Raises:
            InvalidRecordError: It is none of the monitor's; nothing has changed.
        """
        row = None if value is None else decode_json(_decoder, value)
        with self._lock:
            before = self._states.pop(key, None)
            if before is not None:
                self._counts[before] -= 1
            if row is not None:
                state = self._states[key] = sys.intern(row.state or State.ABSENT.name)
                self._counts[state] += 1
            waited = self._waiting.pop(key, None)
            if row is not None and row.state == State.NOTIFIED.name and row.unread_messages > 0:
                is_longer = waited is not None and row.unread_messages >= waited[0]
                since_s = waited[1] if waited and is_longer else row.update_time.timestamp()
                self._waiting[key] = row.unread_messages, since_s

    def counts(self) -> dict[str, int]:
        """The number of queues in each state."""
        with self._lock:
            return {state.name: self._counts[state.name] for state in State}

    def longest_wait_s(self, now_s: float) -> float:
        """How long the queue has waited that has waited longest; 0 if none does.

        Args:
            now_s: The time by the wall clock, in seconds.
        """
        with self._lock:
            since_s = min((since_s for _, since_s in self._waiting.values()), default=now_s)
        return max(0.0, now_s - since_s)
