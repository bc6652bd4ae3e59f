"""The context of a step: the facts that it needs besides its conversation, and its decisions."""

from collections.abc import Mapping
from typing import Protocol

from streaming.core.conversations.decisions import Answered, DeadLetter, Decision
from streaming.core.conversations.kinds import Source
from streaming.core.conversations.mirrors import Mirrors
from streaming.core.conversations.questions import Questions
from streaming.core.conversations.settings import ConversationSettings
from streaming.core.routing.conversation import Instance
from streaming.core.routing.definitions import Definitions
from streaming.core.times import NEVER_MS

_NOBODY: Mapping[str, int] = {}


class Envelope(Protocol):
    """The statement of a program, with the fields of wire/envelope.py."""

    @property
    def type(self) -> str:
        """Returns MESSAGE, END, ERROR, CLEANUP or TIMER."""
        ...

    conversation_id: str
    is_initiator: bool
    from_service: str
    from_database: str
    to_service: str
    to_broker_instance: str | None
    begin: bool
    conversation_group_id: str | None
    lifetime_s: int | None
    error_code: int | None
    timer_ms: int | None


class Context:
    """The facts that a step needs besides the conversation, and its decisions.

    Attributes:
        definitions: Databases, services and routes.
        instance: This instance.
        settings: The settings.
        now_ms: The shard's clock.
        broker_ms: The time by the brokers' clock: that of the batch's newest record.
        held: The number of messages that the shard holds.
        conversations: The number of its conversations.
        incoming_conversations: The number of those that began in other instances.
        away: Address of another instance -> the instant until which it counts as not reachable.
        questions: The questions to the configuration service.
        mirrors: The mirrored routes that have been used.
        round_trip_ms: The time from sending to other instances until they acknowledge, smoothed.
        decisions: The decisions so far, in order.
        read_ms: The instant of the brokers' clock up to which everything that was said has been read before this batch;
            NEVER_MS: not known. Lifetimes and timers that end later wait for the next batch.
        let_go: The number of held messages that may still be let go in this batch.
    """

    __slots__ = (
        "_slowest_ms",
        "away",
        "broker_ms",
        "conversations",
        "decisions",
        "definitions",
        "held",
        "incoming_conversations",
        "instance",
        "let_go",
        "mirrors",
        "now_ms",
        "questions",
        "read_ms",
        "round_trip_ms",
        "settings",
    )

    def __init__(  # noqa: PLR0913, PLR0917  (all of them are needed)
        self,
        definitions: Definitions,
        instance: Instance,
        settings: ConversationSettings,
        now_ms: int,
        broker_ms: int,
        held: int,
        conversations: int,
        incoming_conversations: int,
        away: Mapping[str, int] = _NOBODY,
        questions: Questions | None = None,
        mirrors: Mirrors | None = None,
        round_trip_ms: int = 0,
        read_ms: int = NEVER_MS,
    ) -> None:
        self.definitions = definitions
        self.instance = instance
        self.settings = settings
        self.now_ms = now_ms
        self.broker_ms = broker_ms
        self.read_ms = read_ms
        self.held = held
        self.conversations = conversations
        self.incoming_conversations = incoming_conversations
        self.away = away
        self.questions = Questions() if questions is None else questions
        self.mirrors = Mirrors() if mirrors is None else mirrors
        self.round_trip_ms = round_trip_ms
        # The slowest acknowledgement of the batch; -1: there was none.
        self._slowest_ms = -1
        self.decisions: list[Decision] = []
        self.let_go = settings.max_let_go

    def refuse(self, offset: int, number: int | None, reason: str, source: Source = Source.MESSAGES) -> None:
        """Makes a record a dead letter. A message of the router itself has none."""
        if offset >= 0:
            self.decisions.append(DeadLetter(source, offset, reason, number))

    def resend_after_ms(self) -> int:
        """Returns the time after which a message is sent again for the first time.

        It is that of the settings, but twice as long as acknowledgements take: under load, repetitions would make them
        take even longer.
        """
        settings = self.settings
        taken_ms = max(self.round_trip_ms, self._slowest_ms)
        return max(settings.resend_ms, min(2 * taken_ms, settings.max_resend_ms))

    def note_round_trip(self, sent_ms: int) -> None:
        """Notes that what was sent at an instant is acknowledged."""
        taken_ms = min(self.now_ms - sent_ms, self.settings.max_resend_ms)
        self._slowest_ms = max(self._slowest_ms, taken_ms)

    def close(self) -> None:
        """Ends the batch: its slowest acknowledgement changes the smoothed time, upwards fast, downwards slowly."""
        if self._slowest_ms >= 0:
            share = 2 if self._slowest_ms > self.round_trip_ms else 8
            self.round_trip_ms += (self._slowest_ms - self.round_trip_ms) // share

    def answer(self, database: str, service: str, *, is_error: bool) -> None:
        """Tells all shards that the configuration service has ended a question."""
        self.decisions.append(Answered(database, service, is_error))
