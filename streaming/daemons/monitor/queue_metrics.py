"""Metrics of the monitors view: the number of queues in each state, and the longest wait for a reader."""

import sys
from collections import Counter
from datetime import datetime
from threading import Lock
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from streaming.core.activation.queue_monitor import State
from streaming.wire.output_records import MonitorState
from streaming.wire.record_decoders import Int64, decode_json


class _MonitorRow(Struct):
    """The fields of a queue-monitors record that the metrics need."""

    state: MonitorState | None
    unread_messages: Int64
    update_time: Annotated[datetime, Meta(tz=True)]


_decoder = msgspec.json.Decoder(_MonitorRow)


class QueuesByState:
    """The queues of the monitors view. Counts them as records arrive, while another thread reads the counts.

    A queue waits for a reader while its state is NOTIFIED and it has unread messages. A RECEIVE ends the wait, but a
    repeated notification after the time-out does not. If a RECEIVE and a new notification are in the same batch, only a
    lower number of unread messages shows the RECEIVE.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._states: dict[bytes, str] = {}
        self._counts: Counter[str] = Counter()
        # key -> (unread messages, since when by the wall clock in seconds)
        self._waiting: dict[bytes, tuple[int, float]] = {}

    def clear(self) -> None:
        """Forgets all queues, because the program will read the view again."""
        with self._lock:
            self._states.clear()
            self._counts.clear()
            self._waiting.clear()

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Applies a record of queue-monitors. The value None is a tombstone.

        Raises:
            InvalidRecordError: The record is not a row of the monitors view. Nothing has changed.
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
        """Returns the number of queues in each state."""
        with self._lock:
            return {state.name: self._counts[state.name] for state in State}

    def longest_wait_s(self, now_s: float) -> float:
        """Returns the longest time, in seconds, that a queue has waited for a reader; 0 if no queue waits.

        Args:
            now_s: The wall-clock time, in seconds.
        """
        with self._lock:
            since_s = min((since_s for _, since_s in self._waiting.values()), default=now_s)
        return max(0.0, now_s - since_s)
