"""Counts of the router's views: endpoints by state and idle time, and held messages by reason and by service."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import Annotated

from msgspec import Meta, Struct

from streaming.core.conversations.endpoint_states import State
from streaming.system.service_labels import MOST, OTHER
from streaming.wire.record_decoders import decoder_of

_HOUR_S = 3_600
# Labels of idle times, and how many hours they are.
_IDLE_HOURS = {"1d": 24, "7d": 7 * 24, "30d": 30 * 24}

_Instant = Annotated[datetime, Meta(tz=True)]


class _EndpointRow(Struct):
    """The fields of a record of service-conversations that the metrics need."""

    state: str
    update_time: _Instant
    last_statement: _Instant | None = None


class _TransmissionRow(Struct):
    """The fields of a record of service-transmissions that the metrics need."""

    messages: Annotated[int, Meta(ge=0)]
    number: int | None
    to_service: str
    held_since: _Instant | None


_decode_endpoint = decoder_of(_EndpointRow)
_decode_transmission = decoder_of(_TransmissionRow)


@dataclass(frozen=True)
class Held:
    """The messages that are held.

    Attributes:
        by_number: Number of Service Broker's message for the reason, or `none` -> number of messages.
        by_service: Label of the service that the messages are for -> number of messages.
        oldest_s: Label of the service -> the longest time for which a message has been held.
    """

    by_number: Mapping[str, int]
    by_service: Mapping[str, int]
    oldest_s: Mapping[str, float]


class Conversations:
    """The rows of both views, counted as their records arrive. Another thread reads the counts."""

    def __init__(self) -> None:
        self._lock = Lock()
        # State of each endpoint, and the hour of its conversation's last statement. Equal pairs are one object, because
        # there may be millions of endpoints.
        self._endpoints: dict[bytes, tuple[str, int]] = {}
        self._counts: Counter[tuple[str, int]] = Counter()
        self._pairs: dict[tuple[str, int], tuple[str, int]] = {}
        self._held: dict[bytes, _TransmissionRow] = {}

    def clear(self) -> None:
        """Forgets all rows, because another thread is about to read the views again."""
        with self._lock:
            self._endpoints.clear()
            self._counts.clear()
            self._pairs.clear()
            self._held.clear()

    def apply_endpoint(self, key: bytes, value: bytes | None) -> None:
        """Applies a record of service-conversations; None is a tombstone. Raises InvalidRecordError."""
        row = None if value is None else _decode_endpoint(value)
        with self._lock:
            before = self._endpoints.pop(key, None)
            if before is not None:
                self._count(before, -1)
            if row is not None:
                hour = int((row.last_statement or row.update_time).timestamp()) // _HOUR_S
                pair = row.state, hour
                self._endpoints[key] = pair = self._pairs.setdefault(pair, pair)
                self._count(pair, 1)

    def apply_transmission(self, key: bytes, value: bytes | None) -> None:
        """Applies a record of service-transmissions; None is a tombstone. Raises InvalidRecordError."""
        row = None if value is None else _decode_transmission(value)
        with self._lock:
            self._held.pop(key, None)
            if row is not None:
                self._held[key] = row

    def _count(self, pair: tuple[str, int], more: int) -> None:
        self._counts[pair] += more
        if not self._counts[pair]:
            del self._counts[pair], self._pairs[pair]

    def by_state(self) -> dict[str, int]:
        """Returns the number of endpoints in each state."""
        with self._lock:
            counts = {state.name: 0 for state in State if state is not State.ABSENT}
            for (state, _), count in self._counts.items():
                if state in counts:
                    counts[state] += count
        return counts

    def idle(self, now_s: float) -> dict[str, int]:
        """Returns label of an idle time -> the number of open endpoints that have been idle for longer.

        Args:
            now_s: The wall clock, in seconds since 1970.
        """
        hour = int(now_s) // _HOUR_S
        with self._lock:
            pairs = [*self._counts.items()]
        return {
            label: sum(count for (state, spoken), count in pairs if state != State.CD.name and spoken < hour - hours)
            for label, hours in _IDLE_HOURS.items()
        }

    def held(self, now_s: float) -> Held:
        """Returns the counts of held messages; `now_s` is the wall clock, in seconds since 1970."""
        with self._lock:
            rows = [*self._held.values()]
        by_number: Counter[str] = Counter()
        messages: Counter[str] = Counter()
        for row in rows:
            by_number["none" if row.number is None else str(row.number)] += row.messages
            messages[row.to_service] += row.messages
        # A program may invent names, so only the services for which most is held have a label of their own.
        labels = {service for service, _ in messages.most_common(MOST)}
        by_service: Counter[str] = Counter({OTHER: 0})
        oldest_s = {OTHER: 0.0}
        for row in rows:
            label = row.to_service if row.to_service in labels else OTHER
            by_service[label] += row.messages
            age_s = 0.0 if row.held_since is None else now_s - row.held_since.timestamp()
            oldest_s[label] = max(age_s, oldest_s.get(label, 0.0))
        return Held(by_number, by_service, oldest_s)
