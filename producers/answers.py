"""Says why no answer comes: a program of services does not run, or the router holds the conversation's messages."""

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from time import monotonic
from typing import Any

from confluent_kafka import Message

from producers.conversations import Statement
from producers.emptiness import NothingFound
from producers.reader import QueueReader
from producers.received_message import ReceivedMessage
from streaming.errors import UserError
from streaming.kafka.access import AccessDeniedError
from streaming.kafka.clients import Cluster
from streaming.kafka.latest_rows import LatestRows
from streaming.kafka.own_programs import how_to_start, is_running, starting, with_advice
from streaming.kafka.topic_follower import Start, TopicFollower, only_of_keys
from streaming.system import hints
from streaming.system.ages import instant_utc
from streaming.system.logs import for_screens
from streaming.system.threads import started
from streaming.wire.own_groups import own_group
from streaming.wire.service_views import TransmissionRow, decode_transmission
from streaming.wire.topics import Topics

_log = logging.getLogger(__name__)

# An answer comes within a second if the other program runs, and some seconds later if it has to be started.
_PATIENCE_S = 3.0
# The pause between two looks doubles, so that a program which waits for days costs Kafka little.
_FIRST_PAUSE_S = 5.0
_LONGEST_PAUSE_S = 300.0
# If more conversations have no answer, only the newest are looked at.
_MAX_WAITING = 1_000


class Unanswered:
    """The conversations of a client whose last message has no answer yet.

    The client's thread calls `asked`, `answered` and `look`. A look writes each new reason to the log.
    """

    def __init__(self, cluster: Cluster, topics: Topics) -> None:
        self._cluster = cluster
        self._topics = topics
        # Conversation -> the instant of its first message without an answer, on the monotonic clock.
        self._since_s: dict[str, float] = {}
        self._told: set[str] = set()
        self._pause_s = _FIRST_PAUSE_S
        self._next_look_s = 0.0
        self._look: Future[None] | None = None

    def asked(self, statements: Iterable[Statement]) -> None:
        """Notes statements that were sent. Timers and ends of a side get no answer."""
        for statement in statements:
            name = statement.conversation.conversation_id
            if statement.ends:
                self._since_s.pop(name, None)
            elif statement.body is not None and name not in self._since_s:
                self._since_s[name] = monotonic()
                self._pause_s, self._next_look_s = _FIRST_PAUSE_S, 0.0
        while len(self._since_s) > _MAX_WAITING:
            del self._since_s[next(iter(self._since_s))]

    def answered(self, messages: Iterable[ReceivedMessage]) -> None:
        """Notes messages that were received."""
        for message in messages:
            self._since_s.pop(message.conversation_id or "", None)

    def look(self) -> None:
        """Looks for the reason in a separate thread if an answer is late, at growing intervals."""
        now_s = monotonic()
        late = [name for name, since_s in self._since_s.items() if now_s - since_s >= _PATIENCE_S]
        if not late or now_s < self._next_look_s or (self._look is not None and not self._look.done()):
            return
        self._next_look_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._look = started(lambda: self._tell(late))

    def _tell(self, late: list[str]) -> None:
        try:
            reasons = self._reasons(late)
        except UserError as error:  # if Kafka is away, the reader itself says so
            _log.info("why no answer comes is unknown: %s", error)
            return
        for key in reasons.keys() - self._told:
            _log.warning("%s", for_screens(_log, reasons[key]))
        # A reason that was gone for a time is new when it comes again.
        self._told = set(reasons)

    def _reasons(self, late: list[str]) -> dict[str, str]:
        """Returns identity of a reason -> its sentence."""
        for program in ("router", "transport"):
            if begins := starting(self._cluster, self._topics, program):
                return {"start": f"no answer yet, because {begins}"}
            if runs(self._cluster, self._topics, program) is False:
                return {program: f"no answer yet, because {without(self._cluster, self._topics, program)}"}
        found: dict[str, str] = {}
        for row in _held(self._cluster, self._topics, {*late}):
            found.setdefault(f"{row.to_service} {row.reason}", self._sentence(row))
        return found

    def _sentence(self, row: TransmissionRow) -> str:
        with hints.of_client(self._cluster.bootstrap_servers, self._topics.prefix):
            show = hints.command("conversation", "show", row.conversation_id)
        number = "" if row.number is None else f"{row.number}: "
        if row.is_unacknowledged:
            return f"no answer yet to a message to {row.to_service}: {row.reason}. `{show}` says more"
        return (
            f"no answer yet, because the router holds messages to {row.to_service} since "
            f"{instant_utc(row.held_since)}. {number}{row.reason}. `{show}` says more"
        )


class AnswerReader(QueueReader):
    """A queue reader that says why no answer comes to the conversations of its client."""

    def __init__(self, unanswered: Unanswered, bootstrap_servers: str, queue: str, **options: Any) -> None:
        """Connects. `QueueReader` describes the other arguments and the errors."""
        self._unanswered = unanswered
        super().__init__(bootstrap_servers, queue, **options)

    @contextmanager
    def receive(self, max_messages: int, timeout: float) -> Iterator[list[ReceivedMessage]]:
        """Receives messages as `QueueReader.receive` does."""
        with super().receive(max_messages, timeout) as messages:
            self._unanswered.answered(messages)
            yield messages

    def _look(self) -> NothingFound | None:
        self._unanswered.look()
        return super()._look()


def runs(cluster: Cluster, topics: Topics, program: str) -> bool | None:
    """Returns whether a program runs; None if this user may not see that, or if Kafka cannot be reached."""
    try:
        return is_running(cluster, topics, program)
    except UserError:
        return None


def without(cluster: Cluster, topics: Topics, program: str) -> str:
    """Returns the sentence that a program does not run, with the advice on how to start it."""
    with hints.of_client(cluster.bootstrap_servers, topics.prefix):
        advice = how_to_start(cluster, topics, program)
    return with_advice(f"no {program} is in the consumer group {topics.prefix}{own_group(program)}", advice)


def _held(cluster: Cluster, topics: Topics, conversations: set[str]) -> list[TransmissionRow]:
    """Returns the messages of these conversations that the router holds; none if this user may not see them."""
    latest = LatestRows("row of held messages", _row_of, _log.info)
    topic = topics.service_transmissions
    try:
        offsets = only_of_keys(cluster, topic, conversations)
        with TopicFollower(cluster, [topic], Start.BEGINNING, offsets=offsets) as follower:
            for message in follower.to_end():
                latest.take(message)
    except AccessDeniedError as error:
        _log.info("whether messages are held is unknown: %s", error)
    return [row for row in latest.rows.values() if row.conversation_id in conversations]


def _row_of(message: Message) -> tuple[str, TransmissionRow | None]:
    value = message.value()
    return (message.key() or b"").decode(errors="replace"), None if value is None else decode_transmission(value)
