"""The questions to the configuration service, which answers them by CREATE ROUTE (dynamic routing).

A shard that needs a route reports its need to all shards. One shard begins a conversation with the configuration
service, and reports the end of the conversation to all shards. So every shard knows the pending questions, and each
service is asked for once, however many conversations wait for it.

A question is open until the configuration service ends it. The router takes an undelivered question back when no
conversation waits for it any more. A service has one open question at a time. A question that fails or brings no route
may be asked again after 10 s, the time of a delayed conversation (R4 of docs/routing.md).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any
from xml.sax.saxutils import escape

from streaming.core.routing.conversation import Question
from streaming.core.times import FOREVER_MS

MISSING_ROUTE = "http://schemas.microsoft.com/SQL/ServiceBroker/BrokerConfigurationNotice/MissingRoute"
# The number of Service Broker's message for a question that ended with an error.
QUESTION_FAILED = 9761

_ASK_AGAIN_MS = 10_000
# Interval at which a shard reports its need for a route, as long as it needs one.
_NEEDED_AGAIN_MS = 60_000
# A question is taken back if no shard has reported its need for this time.
NEEDED_FOR_MS = 2 * _NEEDED_AGAIN_MS
# The most questions that are known at a time. Other services wait until there is room.
MAX_QUESTIONS = 1_000

# A database, and the service that its routing table lacks.
Missing = tuple[str, str]

_NOT_HELD: Mapping[str, Question] = {}


class Progress(IntEnum):
    """The progress of a question."""

    NEEDED = 0
    ASKED = 1
    FAILED = 2
    ANSWERED = 3


# Database, service, progress, and the instant at which its time is over.
Snapshot = list[tuple[str, str, int, int]]


@dataclass(slots=True)
class _Known:
    progress: Progress
    until_ms: int


class Questions:
    """The questions that a shard knows of. All instants are of the shard's clock."""

    def __init__(self, snapshot: Iterable[Sequence[Any]] = (), open_: Iterable[Sequence[str]] = ()) -> None:
        """Restores questions from the results of `snapshot` and `open`, which may have lists instead of tuples."""
        self._known: dict[Missing, _Known] = {}
        self._open: dict[Missing, str] = {(database, service): name for database, service, name in open_}
        for database, service, progress, until_ms in snapshot:
            self._known[database, service] = _Known(Progress(progress), until_ms)

    def snapshot(self) -> Snapshot:
        """Returns the questions as plain values."""
        return [(*missing, int(known.progress), known.until_ms) for missing, known in sorted(self._known.items())]

    def open(self) -> list[tuple[str, str, str]]:
        """Returns the open questions of this shard: database, service, conversation."""
        return [(*missing, name) for missing, name in sorted(self._open.items())]

    def conversation_about(self, missing: Missing) -> str | None:
        """Returns the conversation of the open question about a service; None: there is no such question."""
        return self._open.get(missing)

    def begin(self, missing: Missing, conversation_id: str) -> None:
        """Notes that this shard has begun a question."""
        self._open[missing] = conversation_id

    def close(self, missing: Missing) -> None:
        """Notes that a question of this shard has ended."""
        self._open.pop(missing, None)

    def states(self, service: str, *, was_held: bool) -> Mapping[str, Question]:
        """Returns the states of the questions about a service, by database.

        Args:
            service: The service.
            was_held: Whether the conversation was held before the answer. Only a new conversation asks a new question.
                Otherwise two conversations whose answers bring no route would ask in turn without end.
        """
        if not self._known:
            return _NOT_HELD
        return {
            database: Question.ANSWERED if known.progress is Progress.ANSWERED else Question.PENDING
            for (database, name), known in self._known.items()
            if name == service and (was_held or known.progress is not Progress.ANSWERED)
        }

    def has_failed(self, service: str) -> bool:
        """Returns whether the last question about a service has failed."""
        return any(known.progress is Progress.FAILED for (_, name), known in self._known.items() if name == service)

    def need(self, missing: Missing, now_ms: int) -> bool:
        """Notes that a route is needed. Returns whether the other shards are to be told."""
        known = self._known.get(missing)
        if (known is not None and known.progress is not Progress.ANSWERED) or self.is_full:
            return False
        self._known[missing] = _Known(Progress.NEEDED, now_ms + _NEEDED_AGAIN_MS)
        return True

    def ask(self, missing: Missing, now_ms: int) -> bool:
        """Notes that a shard needs a route. Returns whether to ask the configuration service for the route."""
        known = self._known.get(missing)
        if known is not None and known.progress in {Progress.ASKED, Progress.FAILED}:
            return False
        if known is None and self.is_full:
            return False
        self._known[missing] = _Known(Progress.ASKED, now_ms + _NEEDED_AGAIN_MS)
        return True

    def end(self, missing: Missing, now_ms: int, *, is_error: bool) -> None:
        """Notes that a question has ended."""
        if missing in self._known or not self.is_full:
            progress = Progress.FAILED if is_error else Progress.ANSWERED
            self._known[missing] = _Known(progress, now_ms + _ASK_AGAIN_MS)

    def expire(self, now_ms: int) -> set[str]:
        """Forgets the questions whose time is over. Returns these questions' services, which may be asked for again."""
        over = [missing for missing, known in self._known.items() if known.until_ms <= now_ms]
        for missing in over:
            del self._known[missing]
        return {service for _, service in over}

    @property
    def is_full(self) -> bool:
        """Returns whether there is no room for another question."""
        return len(self._known) >= MAX_QUESTIONS

    def next_ms(self) -> int:
        """Returns the earliest instant at which the time of a question is over."""
        return min((known.until_ms for known in self._known.values()), default=FOREVER_MS)


def missing_route(service: str, broker_instance: str | None) -> str:
    """Returns the body of a question: the XML of Service Broker's MissingRoute."""
    instance = "" if broker_instance is None else f"<BROKER_INSTANCE>{escape(broker_instance)}</BROKER_INSTANCE>"
    name = f"<SERVICE_NAME>{escape(service)}</SERVICE_NAME>"
    return f'<MissingRoute xmlns="{MISSING_ROUTE}">{name}{instance}</MissingRoute>'
