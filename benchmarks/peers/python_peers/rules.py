"""The monitor's rules A and B with time-out, for one queue and one record at a time.

Each peer keeps a `Monitor` for each queue in its engine's state, encoded as a few bytes.
"""

from typing import Literal

import msgspec
from msgspec import Struct

WINDOW_MS = TIMEOUT_MS = 3_600_000

# The beginning of 1970, which is longer ago than any window.
NEVER_MS = 0

INACTIVE, NOTIFIED, RECEIVES_OCCURRING = range(3)


class Record(Struct, gc=False):
    """A record of either input topic."""

    queue: str
    type: Literal["MESSAGE_ARRIVED", "RECEIVE"] = "MESSAGE_ARRIVED"
    count: int = 1
    session_id: str = ""
    result: Literal["", "MESSAGES", "EMPTY", "WAITING"] = ""
    messages: int = 0
    where: bool = False


class Monitor(Struct, array_like=True, gc=False):
    """The state of one queue.

    `timer_ms` is the timer that the engine has for this queue, or `NEVER_MS` for none. It stays as long as it is early
    enough, so a record that only delays the next check costs no timer. A timer that comes too early does nothing, and
    the next one is set.
    """

    state: int = INACTIVE
    unread: int = 0
    sequence: int = 0
    anchor_ms: int = NEVER_MS
    last_empty_ms: int = NEVER_MS
    last_activated_ms: int = NEVER_MS
    timer_ms: int = NEVER_MS
    waiting: set[str] = msgspec.field(default_factory=set)

    def apply(self, record: Record, now_ms: int) -> bytes | None:
        """Applies a record and checks the queue; returns the activation to write, if one is due."""
        if record.type == "MESSAGE_ARRIVED":
            has_arrived = self.unread <= 0
            self.unread += record.count
        else:
            has_arrived = False
            self._receive(record, now_ms)
        if self.unread <= 0 and self.state != NOTIFIED:
            self.state = INACTIVE
            self.anchor_ms = NEVER_MS
        return self._check(record.queue, has_arrived, now_ms)

    def on_timer(self, queue: str, now_ms: int) -> bytes | None:
        """Checks the queue because its timer is due; returns the activation to write, if one is due."""
        self.timer_ms = NEVER_MS
        return self._check(queue, False, now_ms)

    def next_check_ms(self) -> int | None:
        """Returns when the answer can change without a record; None if it cannot."""
        if self.state == NOTIFIED:
            return self.last_activated_ms + TIMEOUT_MS
        if self.unread > 0 and not self.waiting:
            return max(self.last_empty_ms, self.anchor_ms) + WINDOW_MS
        return None

    def new_timer_ms(self) -> int | None:
        """Returns the timer to set, if the present one would come too late."""
        due_ms = self.next_check_ms()
        if due_ms is None or NEVER_MS < self.timer_ms <= due_ms:
            return None
        self.timer_ms = due_ms
        return due_ms

    def _receive(self, record: Record, now_ms: int) -> None:
        if record.result == "WAITING":
            is_renewal = record.session_id in self.waiting
            self.waiting.add(record.session_id)
        else:
            is_renewal = False
            self.waiting.discard(record.session_id)
        if not is_renewal and self.state != RECEIVES_OCCURRING:
            self.anchor_ms = now_ms
            if self.state == NOTIFIED:
                self.state = RECEIVES_OCCURRING
        if record.result == "MESSAGES":
            self.unread -= record.messages
        elif record.result == "EMPTY" and not record.where:
            self.last_empty_ms = now_ms

    def _check(self, queue: str, has_arrived: bool, now_ms: int) -> bytes | None:
        has_timed_out = False
        if self.state == NOTIFIED:
            if now_ms < self.last_activated_ms + TIMEOUT_MS:
                return None
            has_timed_out = True
            self.anchor_ms = NEVER_MS
        if self.unread <= 0:
            self.state = INACTIVE
            return None
        on_empty_queue = has_arrived and self.unread > len(self.waiting)
        quiet_since_ms = max(self.last_empty_ms, self.anchor_ms)
        if not on_empty_queue and (self.waiting or now_ms - quiet_since_ms < WINDOW_MS):
            self.state = RECEIVES_OCCURRING
            return None
        self.state = NOTIFIED
        self.last_activated_ms = now_ms
        self.sequence += 1
        if has_timed_out:
            reason = "TIMEOUT_EXPIRED"
        else:
            reason = "MESSAGE_ARRIVED_ON_EMPTY_QUEUE" if on_empty_queue else "MESSAGES_ACCUMULATING"
        return msgspec.json.encode({"queue": queue, "sequence": self.sequence, "reason": reason})


class _Key(Struct, gc=False):
    queue: str


_RECORDS = msgspec.json.Decoder(Record)
_KEYS = msgspec.json.Decoder(_Key)
_MONITORS = msgspec.msgpack.Decoder(Monitor)
_ENCODER = msgspec.msgpack.Encoder()


# Functions instead of the bound methods, because engines pickle the code that refers to them.
def decode_record(value: bytes | str) -> Record:
    """Decodes a record's value."""
    return _RECORDS.decode(value)


def decode_queue(value: bytes | str) -> str:
    """Decodes only the queue of a record, for engines that do not provide the key."""
    return _KEYS.decode(value).queue


def encode(monitor: Monitor) -> bytes:
    """Encodes a monitor for the engine's state."""
    return _ENCODER.encode(monitor)


def decode(stored: bytes) -> Monitor:
    """Decodes a monitor from the engine's state."""
    return _MONITORS.decode(stored)
