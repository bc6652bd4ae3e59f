"""The context of a batch: the facts that each step needs besides its conversation, and the decisions so far."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from streaming.core.conversations.decisions import Answered, AskRole, DeadLetter, Decision, NeedRoute
from streaming.core.conversations.kinds import Source
from streaming.core.conversations.mirrors import Mirrors
from streaming.core.conversations.questions import Questions
from streaming.core.conversations.settings import ConversationSettings
from streaming.core.routing import conversation as routing
from streaming.core.routing.conversation import Instance, Outcome, Pair
from streaming.core.routing.definitions import Definitions
from streaming.core.routing.resolution import resolve
from streaming.core.times import FOREVER_MS, NEVER_MS


class Envelope(Protocol):
    """The statement of a program, or a message between instances, with the fields of wire/envelope.py."""

    @property
    def type(self) -> str:
        """Returns MESSAGE, END, ERROR, CLEANUP or TIMER; between instances also ACK."""
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
    from_broker_instance: str | None
    message_sequence_number: int | None
    first_unacknowledged: int | None
    receive_sequence_number: int | None
    hops_remaining: int | None


def end_of_lifetime(envelope: Envelope, timestamp_ms: int) -> int:
    """Returns the end of the lifetime of the conversation that a message begins; FOREVER_MS without a lifetime."""
    return FOREVER_MS if envelope.lifetime_s is None else timestamp_ms + envelope.lifetime_s * 1000


@dataclass(slots=True, eq=False)
class Context:
    """The facts that a step needs besides its conversation, and the decisions so far.

    Attributes:
        definitions: Databases, services and routes.
        instance: This instance.
        settings: The settings.
        now_ms: The time by the shard's clock.
        broker_ms: The time by the brokers' clock: the timestamp of the batch's newest record.
        waiting_count: The number of the shard's messages that wait for delivery or for an acknowledgement.
        conversations: The number of the shard's conversations.
        incoming_conversations: The number of the shard's conversations that began in other instances.
        away: Address of another instance -> the instant until which it counts as not reachable.
        questions: The questions to the configuration service.
        mirrors: The mirrored routes that have been used.
        round_trip_ms: The smoothed time from sending to another instance until that instance's acknowledgement.
        read_ms: The instant of the brokers' clock up to which earlier batches have read all statements and messages;
            NEVER_MS: not known. Lifetimes and timers that end later wait for the next batch.
        decisions: The decisions so far, in order.
        slowest_ms: The time of the batch's slowest acknowledgement; None: there was no acknowledgement.
        let_go: The number of held messages that this batch may still release.
    """

    definitions: Definitions
    instance: Instance
    settings: ConversationSettings
    now_ms: int
    broker_ms: int
    waiting_count: int
    conversations: int
    incoming_conversations: int
    away: Mapping[str, int] = field(default_factory=dict)
    questions: Questions = field(default_factory=Questions)
    mirrors: Mirrors = field(default_factory=Mirrors)
    round_trip_ms: int = 0
    read_ms: int = NEVER_MS
    decisions: list[Decision] = field(default_factory=list)
    slowest_ms: int | None = None
    let_go: int = field(init=False)

    def __post_init__(self) -> None:
        self.let_go = self.settings.max_let_go

    def refuse(self, offset: int, number: int | None, reason: str, source: Source = Source.MESSAGES) -> None:
        """Makes a record a dead letter. A message of the router itself has no record: its offset is negative."""
        if offset >= 0:
            self.decisions.append(DeadLetter(source, offset, reason, number))

    def answer(self, database: str, service: str, *, is_error: bool) -> None:
        """Tells all shards that the configuration service has ended a question."""
        self.decisions.append(Answered(database, service, is_error))

    def decide(
        self, conversation: routing.RoutedMessage, *, was_held: bool = False, returned: Collection[str] = ()
    ) -> routing.Decision:
        """Decides where a message goes now. Asks for a missing route, or for the principal of a mirrored route.

        Args:
            conversation: The conversation, as the message names it.
            was_held: Whether messages of the conversation are held already.
            returned: The addresses from which messages of the conversation have come back to this instance.

        Returns:
            The decision. For a mirrored route, the address is the principal's address.
        """
        service = conversation.to_service
        decision = resolve(
            self.definitions,
            self.instance,
            conversation,
            questions=self.questions.states(service, was_held=was_held or conversation.from_database is None),
            is_literal=self.settings.is_literal and not was_held,
            principal_of=self.mirrors.principal,
            returned=returned,
        )
        table = decision.table
        if decision.asks and table is not None and self.questions.need((table, service), self.now_ms):
            self.decisions.append(NeedRoute(table, service, conversation.to_broker_instance))
        pair = _pair_of(decision)
        if pair is not None and decision.outcome is not Outcome.REMOTE:
            self.mirrors.wait(pair)
            self.ask(pair)
        return decision

    def doubt_principal(self, decision: routing.Decision) -> None:
        """Asks for the principal of a mirrored route again, because the known principal seems not to answer."""
        pair = _pair_of(decision)
        if pair is not None:
            self.ask(pair)

    def ask(self, pair: Pair) -> None:
        """Asks both addresses of a mirrored route for their roles, unless they were asked a moment ago."""
        asked = self.mirrors.ask(pair, self.now_ms)
        if asked is not None:
            self.decisions.append(AskRole(*asked))

    def resend_after_ms(self) -> int:
        """Returns the time after which a message is sent again for the first time.

        This is the time of the settings, but at least twice the time that acknowledgements take. Under load, early
        repetitions would delay acknowledgements further.
        """
        settings = self.settings
        taken_ms = max(self.round_trip_ms, self.slowest_ms or 0)
        return max(settings.resend_ms, min(2 * taken_ms, settings.max_resend_ms))

    def note_round_trip(self, sent_ms: int) -> None:
        """Notes the acknowledgement of messages that were sent at an instant."""
        taken_ms = min(self.now_ms - sent_ms, self.settings.max_resend_ms)
        self.slowest_ms = max(self.slowest_ms or 0, taken_ms)

    def close(self) -> None:
        """Ends the batch. The slowest acknowledgement raises the smoothed round-trip time fast, or lowers it slowly."""
        if self.slowest_ms is not None:
            share = 2 if self.slowest_ms > self.round_trip_ms else 8
            self.round_trip_ms += (self.slowest_ms - self.round_trip_ms) // share


def _pair_of(decision: routing.Decision) -> Pair | None:
    """Returns the pair of addresses to which a mirrored route leads; None: the route has no mirror."""
    if decision.mirror_address is None or decision.route_address is None:
        return None
    return decision.broker_instance or "", decision.route_address, decision.mirror_address
