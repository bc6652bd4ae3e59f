"""Ends endpoints on behalf of their programs, and waits until the router shows the effect."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from confluent_kafka import Message

from streaming.cli.command_sender import Record, send_records
from streaming.cli.conversations.lists import STATES
from streaming.cli.dead_letters import decode
from streaming.cli.lines import say
from streaming.cli.routing.router_waits import Patience
from streaming.core.conversations.endpoint_states import ENDED, State, Trigger, after
from streaming.core.numbers import plural
from streaming.errors import UserError
from streaming.kafka.clients import Cluster
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system import hints
from streaming.system.durations import Duration
from streaming.wire.envelope import HEADER, Envelope, encode_envelope
from streaming.wire.record_decoders import InvalidRecordError, by_field
from streaming.wire.service_views import EndpointRow, decode_endpoint
from streaming.wire.topics import Topics

_TRIGGERS = {"END": Trigger.END, "ERROR": Trigger.END_WITH_ERROR, "CLEANUP": Trigger.END_WITH_CLEANUP}
_POLL_S = 0.1
# The most lines about single endpoints.
_MAX_LINES = 10


@dataclass(frozen=True)
class Ending:
    """The statement that ends endpoints.

    Attributes:
        kind: END, ERROR or CLEANUP.
        error_code: The code of an ERROR.
        error_text: The text of an ERROR.
    """

    kind: Literal["END", "ERROR", "CLEANUP"] = "END"
    error_code: int | None = None
    error_text: str | None = None

    def is_allowed(self, row: EndpointRow, held: int) -> bool:
        """Returns whether an endpoint allows the statement. A closed endpoint without held messages allows none."""
        if row.state == State.CD.name and not held:
            return False
        return self.next_state(row) is not None

    def next_state(self, row: EndpointRow) -> State | None:
        """Returns the state of an endpoint after the statement; None if the state does not allow the statement."""
        return after(State.__members__.get(row.state, State.ABSENT), _TRIGGERS[self.kind])

    def is_done(self, row: EndpointRow) -> bool:
        """Returns whether an endpoint shows the effect of the statement."""
        ended = {State.CD.name} if self.kind == "CLEANUP" else {state.name for state in ENDED}
        return row.state in ended

    def statement(self, row: EndpointRow) -> Record:
        """Returns the record that an endpoint's own program would write.

        Raises:
            UserError: The error's code or text is invalid.
        """
        envelope = Envelope(
            type=self.kind,
            conversation_id=row.conversation_id,
            is_initiator=row.is_initiator,
            from_service=row.service,
            from_database=row.database,
            to_service=row.far_service,
            error_code=self.error_code,
            error_text=self.error_text,
        )
        try:
            value = encode_envelope(envelope)
        except InvalidRecordError as error:
            raise UserError(f"The statement is invalid: {by_field(error)}") from None
        return Record(row.conversation_id, b"", ((HEADER, value),))


_CLEANUP = Ending("CLEANUP")


@dataclass
class Outcome:
    """The effect of statements.

    Attributes:
        states: Key of each endpoint that has ended -> its state; None: the view has no row of it any more.
        refused: Key of an endpoint -> why its statement became a dead letter.
        unknown: The keys of endpoints that the router has not shown as ended in time.
    """

    states: dict[str, str | None] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)

    def take_endpoint(self, message: Message, ending: Ending) -> bool:
        """Takes a record of the view of endpoints; returns whether the record shows that an endpoint has ended."""
        key = (message.key() or b"").decode(errors="replace")
        if key not in self.unknown:
            return False
        try:
            row = None if message.value() is None else decode_endpoint(message.value())
        except InvalidRecordError:
            return False
        if row is not None and not ending.is_done(row):
            return False
        self.unknown.discard(key)
        self.states[key] = None if row is None else row.state
        return True

    def take_dead_letter(self, message: Message, topics: Topics, keys: Mapping[tuple[int, int], str]) -> bool:
        """Takes a dead letter; returns whether it refuses one of the statements.

        Args:
            message: The record.
            topics: The topics.
            keys: Partition and offset of a statement -> key of its endpoint.
        """
        letter = decode(message)
        key = keys.get((letter["partition"], letter["offset"]), "")
        if letter["topic"] != topics.service_messages or key not in self.unknown:
            return False
        self.unknown.discard(key)
        self.refused[key] = str(letter["reason"])
        return True


def end(
    kafka: Cluster, topics: Topics, endpoints: Mapping[str, EndpointRow], ending: Ending, timeout_s: float
) -> Outcome:
    """Sends a statement for each endpoint, and waits until the view shows its effect.

    Args:
        kafka: The cluster.
        topics: The topics.
        endpoints: Key -> endpoint whose state allows the statement.
        ending: The statement.
        timeout_s: The longest time between the ends of two endpoints.

    Raises:
        UserError: Kafka cannot be reached or refuses, or the statement is invalid.
    """
    records = [ending.statement(row) for row in endpoints.values()]
    followed = [topics.service_conversations, topics.service_dead_letters]
    with TopicFollower(kafka, followed, Start.END) as follower:
        check = hints.command("conversation", "list")
        places = send_records(kafka, topics.service_messages, records, check)
        keys = dict(zip(places, endpoints, strict=True))
        outcome = Outcome(unknown={*endpoints})
        deadline_s = time.monotonic() + timeout_s
        patience = Patience("the router to show that they have ended")
        while outcome.unknown and time.monotonic() < deadline_s:
            message = follower.poll(_POLL_S)
            patience.look()
            if message is None:
                continue
            if message.topic() == topics.service_dead_letters:
                is_news = outcome.take_dead_letter(message, topics, keys)
            else:
                is_news = outcome.take_endpoint(message, ending)
            if is_news:
                deadline_s = time.monotonic() + timeout_s
    return outcome


def not_allowed(ending: Ending, rows: Sequence[tuple[EndpointRow, int]]) -> Iterator[str]:
    """Yields a line for each endpoint that does not allow the statement.

    Args:
        ending: The statement.
        rows: Each endpoint, with the number of messages that it holds.
    """
    for row, held in rows:
        side = "initiator" if row.is_initiator else "target"
        advice = "; --cleanup ends it" if _CLEANUP.is_allowed(row, held) else ""
        if not ending.is_allowed(row, held):
            yield f"the {side} is in state {row.state}, which does not allow {ending.kind}{advice}"


def by_state(rows: Sequence[tuple[EndpointRow, int]]) -> Iterator[str]:
    """Yields a line for each state of endpoints that do not allow a statement, in the order of their lives.

    Args:
        rows: The endpoints, each with the number of messages that it holds.
    """
    counts = Counter((row.state, _CLEANUP.is_allowed(row, held)) for row, held in rows)
    for state in dict.fromkeys([*STATES, *(state for state, _ in counts)]):
        for is_ended in (True, False):
            if count := counts[state, is_ended]:
                meaning = f": {STATES[state]}" if state in STATES else ""
                advice = f"; --cleanup ends {'it' if count == 1 else 'them'}" if is_ended else ""
                yield f"{plural(count, 'endpoint')} in state {state}{meaning}{advice}"


def behind_held(ending: Ending, rows: Sequence[tuple[EndpointRow, int]]) -> Iterator[str]:
    """Yields a line if the far side gets held messages before the statement, or if the statement drops them.

    Args:
        ending: The statement.
        rows: Each endpoint that allows the statement, with the number of messages that it holds.
    """
    holding = [(row, held) for row, held in rows if held]
    telling = [each for each in holding if ending.next_state(each[0]) is State.DO]  # the others are closed at once
    count = sum(held for _, held in (holding if ending.kind == "ERROR" else telling))
    if ending.kind == "CLEANUP" or not count:
        return
    messages = f"{count:,} message{' is' if count == 1 else 's are'} held"
    if not telling:
        yield f"{messages}, and dropped"
        return
    waits = "and the END waits behind"
    if ending.kind == "ERROR" and all(row.far_database or not row.is_initiator for row, _ in telling):
        waits = "and dropped, but the ERROR waits instead"
    elif ending.kind == "ERROR":  # the target may also be in another instance
        them, was = ("it was", "it was not") if count == 1 else ("they were", "none was")
        waits = (
            f"and dropped unless {them} sent to another instance. If {was}, nobody is told. Otherwise the ERROR waits"
        )
    conversations = {row.conversation_id for row, _ in telling}
    name = conversations.pop() if len(conversations) == 1 else "CONVERSATION"
    cleanup = hints.command("conversation", "end", name, "--cleanup")
    yield f"{messages}, {waits} until the far side can be told. If it never can: `{cleanup}` ends it, and tells nobody"


def report(outcome: Outcome, timeout: Duration, absent: str | None) -> int:
    """Prints the outcome; returns the exit code.

    Args:
        outcome: The outcome.
        timeout: The time for which the command has waited.
        absent: The sentence that no router runs. The command has then not waited. None: a router runs.
    """
    for key, reason in [*outcome.refused.items()][:_MAX_LINES]:
        say(f"{key}: refused, {reason}", err=True)
    if len(outcome.states) == 1:
        [(key, state)] = outcome.states.items()
        say(f"{key}: ended, state {state or 'gone'}")
    elif absent is None or outcome.states:
        say(f"{len(outcome.states):,} endpoints ended")
    if len(outcome.refused) > 1:
        say(f"{len(outcome.refused):,} statements were refused", err=True)
    if outcome.unknown and absent is not None:
        endpoints = plural(len(outcome.unknown), "endpoint")
        say(f"The statements are sent, and a router ends {endpoints} when it reads them: {absent}", err=True)
    elif outcome.unknown:
        say(
            f"The router has not shown the end of {plural(len(outcome.unknown), 'endpoint')} within {timeout}. "
            f"It ends them when it reads the statements. `{hints.command('diagnose')}` says whether it gets on.",
            err=True,
        )
    return 1 if outcome.refused or outcome.unknown else 0
