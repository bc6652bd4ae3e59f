"""The timeline of one queue, from its records: the lanes show how the rules of activation work on the queue."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any

from streaming.cli.dashboard.activations import Activated
from streaming.cli.dashboard.queue_history import QueueHistory
from streaming.core.activation import events
from streaming.core.activation.events import Event, Receive, ReceiveResult
from streaming.core.times import iso_ms


class Doing(StrEnum):
    """The work of a reader during a part of its life."""

    WAITS = "waits"
    WORKS = "works"


@dataclass
class Span:
    """A span of time; `until_ms` is None while it lasts."""

    from_ms: int
    until_ms: int | None
    what: str


@dataclass
class Reader:
    """The life of a reader: a session.

    Attributes:
        name: Its session id.
        life: The span from the session's first report in the period to the end of the session.
        spans: The spans of waiting in RECEIVE, and of open transactions with messages.
        last_ms: The time of the session's last report.
        received: The number of messages that the session has received in the period.
    """

    name: str
    life: Span
    spans: list[Span] = field(default_factory=list)
    last_ms: int = 0
    received: int = 0


@dataclass
class Timeline:
    """The content of a picture of a period.

    Attributes:
        from_ms: The beginning of the period.
        until_ms: The end of the period.
        arrivals: (time, messages).
        receives: (time, messages) of RECEIVEs that got messages.
        empties: The times of RECEIVEs without WHERE that got no message.
        unread: (time, unread messages) at each change that the monitor has written.
        members: (time, members) of an observed consumer group.
        quiet: The quiet windows.
        suppressed: The spans from each activation to its answer, or to the end of its time-out.
        activations: (time, activation).
        readers: The readers that did something, in order of their first report.
        window_ms: The length of the last quiet window; None: no window is known.
        is_complete: Whether all records of the period were read.
        rows_until_ms: The time until which rows of the monitor are known; None: until the end of the period.
    """

    from_ms: int
    until_ms: int
    arrivals: list[tuple[int, int]] = field(default_factory=list)
    receives: list[tuple[int, int]] = field(default_factory=list)
    empties: list[int] = field(default_factory=list)
    unread: list[tuple[int, int]] = field(default_factory=list)
    members: list[tuple[int, int]] = field(default_factory=list)
    quiet: list[Span] = field(default_factory=list)
    suppressed: list[Span] = field(default_factory=list)
    activations: list[tuple[int, Activated]] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    window_ms: int | None = None
    is_complete: bool = True
    rows_until_ms: int | None = None

    @property
    def rows_from_ms(self) -> int:
        """Returns the time from which rows of the monitor are known."""
        return self.unread[0][0] if self.unread else self.until_ms

    @property
    def members_from_ms(self) -> int:
        """Returns the time from which the number of members is known."""
        return self.members[0][0] if self.members else self.until_ms

    @property
    def is_silent(self) -> bool:
        """Returns whether an observer reports the queue, and no sender or reader does."""
        return bool(self.members) and not (self.arrivals or self.readers)

    def next_reader(self, number: int) -> tuple[Reader, int] | None:
        """Returns the first new reader between an activation and the next activation, and how many ms it took to come.

        The reader answers the activation, unless readers are also started without activations. If no reader reports,
        the result may be a new member of the consumer group, which an observer has reported.

        Args:
            number: The index of the activation.
        """
        from_ms = self.activations[number][0]
        until_ms = self.activations[number + 1][0] if number + 1 < len(self.activations) else self.until_ms
        joined = [
            Reader("a new member", Span(at_ms, None, "lives"))
            for (_, before), (at_ms, members) in pairwise(self.members)
            if members > before
        ]
        came = (each for each in self.readers or joined if from_ms <= each.life.from_ms <= until_ms)
        found = min(came, key=lambda each: each.life.from_ms, default=None)
        return None if found is None else (found, found.life.from_ms - from_ms)


def timeline(history: QueueHistory, from_ms: int, until_ms: int, rows_until_ms: int | None = None) -> Timeline:
    """Returns the timeline of a period from the records of the period, and from the row before the period.

    Args:
        history: The records.
        from_ms: The beginning of the period.
        until_ms: Its end.
        rows_until_ms: The last sign of life of a monitor that does not run; None if a monitor runs.
    """
    line = Timeline(from_ms, until_ms, is_complete=history.is_complete, rows_until_ms=rows_until_ms)
    line.activations = history.activations
    _add_events(line, history.events)
    before = history.before
    if before is not None and before.get("members") is not None and not before.get("observer_silent_since"):
        line.members.insert(0, (from_ms, before["members"]))
    _add_rows(line, history.rows if before is None else [(from_ms, before), *history.rows])
    # The row before the period may have spans that ended before the period.
    for spans in (line.quiet, line.suppressed):
        spans[:] = [span for span in spans if span.until_ms is None or span.until_ms >= from_ms]
    return line


def _add_events(line: Timeline, dated: Iterable[tuple[int, Event]]) -> None:
    readers: dict[str, _Life] = {}
    for at_ms, event in dated:
        if isinstance(event, events.MessageArrived):
            line.arrivals.append((at_ms, event.count))
        elif isinstance(event, events.GroupObserved):
            line.members.append((at_ms, event.members))
        session_id = getattr(event, "session_id", None)
        # A program that ends reports the end of all its sessions, even of sessions that did nothing.
        if session_id is None or (session_id not in readers and isinstance(event, events.SessionEnded)):
            continue
        if session_id not in readers:
            readers[session_id] = _Life(Reader(session_id, Span(at_ms, None, "lives")))
            line.readers.append(readers[session_id].reader)
        readers[session_id].take(at_ms, event)
        if isinstance(event, Receive):
            _add_receive(line, at_ms, event)
        if isinstance(event, events.SessionEnded):
            del readers[session_id]


def _add_receive(line: Timeline, at_ms: int, event: Receive) -> None:
    if event.messages:
        line.receives.append((at_ms, event.messages))
    elif event.result is ReceiveResult.EMPTY and not event.where:
        line.empties.append(at_ms)


class _Life:
    """Follows the reports of one session."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._waits: Span | None = None
        self._works: dict[str, Span] = {}

    def take(self, at_ms: int, event: Event) -> None:
        """Applies the next report of the session."""
        self.reader.last_ms = at_ms
        if isinstance(event, Receive):
            self._receive(at_ms, event)
        elif isinstance(event, events.Commit | events.Rollback):
            span = self._works.pop(event.transaction_id, None)
            if span is not None:
                span.until_ms = at_ms
        elif isinstance(event, events.SessionEnded):
            for span in (self._waits, *self._works.values(), self.reader.life):
                if span is not None:
                    span.until_ms = at_ms

    def _receive(self, at_ms: int, event: Receive) -> None:
        self.reader.received += event.messages
        if event.result is ReceiveResult.WAITING:
            if self._waits is None:
                self._waits = self._begin(at_ms, Doing.WAITS)
            return
        if self._waits is not None:
            self._waits.until_ms, self._waits = at_ms, None
        if event.messages and event.transaction_id and event.transaction_id not in self._works:
            self._works[event.transaction_id] = self._begin(at_ms, Doing.WORKS)

    def _begin(self, at_ms: int, what: str) -> Span:
        span = Span(at_ms, None, what)
        self.reader.spans.append(span)
        return span


def _add_rows(line: Timeline, rows: Sequence[tuple[int, dict[str, Any]]]) -> None:
    suppressed: Span | None = None
    for written_ms, row in rows:
        at_ms = max(line.from_ms, _instant(row["update_time"], written_ms))
        line.unread.append((at_ms, max(0, row["unread_messages"])))
        if row["state"] == "NOTIFIED":
            if suppressed is None or suppressed.what != str(row["activation_sequence"]):
                begins_ms = _instant(row["last_activated_time"], at_ms)
                suppressed = Span(begins_ms, None, str(row["activation_sequence"]))
                line.suppressed.append(suppressed)
            # Until an answer comes, the span ends with the time-out.
            suppressed.until_ms = iso_ms(row["next_check_time"] or "")
        elif suppressed is not None:
            suppressed.until_ms, suppressed = at_ms, None
        _add_quiet(line, at_ms, row)


def _add_quiet(line: Timeline, at_ms: int, row: dict[str, Any]) -> None:
    """Adds the quiet window of a row. A window begins anew with each empty result, and may be cut short."""
    if line.quiet and line.quiet[-1].until_ms is not None and line.quiet[-1].until_ms > at_ms:
        line.quiet[-1].until_ms = at_ms
    until_ms = iso_ms(row.get("quiet_until") or "")
    if until_ms is None:
        return
    since_ms = _instant(row.get("quiet_since"), at_ms)
    if row.get("quiet_since"):
        line.window_ms = until_ms - since_ms
    last = line.quiet[-1] if line.quiet else None
    if last is not None and last.until_ms is not None and last.until_ms >= since_ms:
        last.until_ms = until_ms
    else:
        line.quiet.append(Span(since_ms, until_ms, "quiet"))


def _instant(iso: str | None, otherwise_ms: int) -> int:
    """Returns an instant in ms; the other instant if the text is missing or not an instant."""
    found_ms = iso_ms(iso or "")
    return otherwise_ms if found_ms is None else found_ms
