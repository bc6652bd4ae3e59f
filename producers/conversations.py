"""Conversations as programs see them. The statements of a side take effect with a transaction.

docs/conversations.md explains conversations, and docs/contract.md the records.
"""

import math
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from producers.arguments import checked_headers
from streaming.errors import UserError
from streaming.kafka.clients import DEFAULT_MAX_BYTES
from streaming.kafka.transactions import TransactionalProducer
from streaming.wire.delivered import OWN_HEADERS
from streaming.wire.envelope import HEADER, Envelope, encode_envelope
from streaming.wire.record_decoders import InvalidRecordError, by_field

Headers = Iterable[tuple[str, bytes]]

# At least the size of a record without key, body and headers, and that of a header without its name and value.
_RECORD_BYTES = 100
_HEADER_BYTES = 20


@dataclass(frozen=True, slots=True)
class Statement:
    """A record of service-messages that is to be sent.

    Attributes:
        conversation: The conversation.
        envelope: The encoded envelope.
        body: The body.
        headers: Kafka record headers besides the envelope.
        begins: Whether this statement is the first of its conversation.
        ends: Whether this statement ends this side.
    """

    conversation: "Conversation"
    envelope: bytes
    body: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    begins: bool
    ends: bool

    def record_bytes(self) -> int:
        """Returns an upper bound of the size of the statement's record."""
        headers = sum(_HEADER_BYTES + len(name.encode()) + len(value) for name, value in self.headers)
        key = self.conversation.conversation_id.encode()
        own = _RECORD_BYTES + len(key) + _HEADER_BYTES + len(HEADER) + len(self.envelope)
        return own + headers + len(self.body or b"")


class Statements:
    """The statements of a transaction, in order. The transaction's commit sends all of them."""

    def __init__(
        self,
        check: Callable[[], None] | None,
        send_now: Callable[[], None] | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        """Creates the list, which is empty and without a transaction.

        Args:
            check: Checks before the first statement that statements can be sent; raises UserError. None: no check.
            send_now: Sends a statement that is made outside a transaction. None: each statement needs a transaction.
            max_bytes: The most bytes of a record that Kafka's client sends.
        """
        self._check = check
        self._send_now = send_now
        self._max_bytes = max_bytes
        self._is_open = False
        self._waiting: list[Statement] = []

    def open(self) -> None:
        """Opens a transaction; raises RuntimeError if one is open."""
        if self._is_open:
            raise RuntimeError("A transaction is open already")
        self._is_open = True

    def close(self) -> None:
        """Closes the transaction, and drops the statements that were not sent."""
        self._is_open = False
        self.drop()

    def add(self, statement: Statement) -> None:
        """Adds a statement; sends it at once if there is no transaction."""
        if not self._is_open and self._send_now is None:
            raise RuntimeError("A conversation of a received message can be used only in its receive block")
        size = statement.record_bytes()
        if size > self._max_bytes:
            # An error at the commit would roll back the received messages, each time that they are delivered.
            raise UserError(
                f"The statement has {size:,} bytes with its envelope and headers, more than the {self._max_bytes:,} of "
                "`message.max.bytes`"
            )
        if self._check is not None:
            self._check()
            self._check = None
        self._waiting.append(statement)
        statement.conversation.note(statement)
        if not self._is_open and self._send_now is not None:
            try:
                self._send_now()
            finally:
                self.drop()

    def produce(self, producer: TransactionalProducer, topic: str) -> None:
        """Adds the records to the producer's open transaction. Call `sent` after the commit."""
        for statement in self._waiting:
            headers = [*statement.headers, (HEADER, statement.envelope)]
            producer.produce(topic, statement.body, statement.conversation.conversation_id.encode(), headers)

    def sent(self) -> list[Statement]:
        """Records that the transaction was committed, and returns its statements."""
        sent, self._waiting = self._waiting, []
        return sent

    def drop(self) -> None:
        """Drops the statements that were not sent, and restores their conversations."""
        for statement in reversed(self._waiting):
            statement.conversation.take_back(statement)
        self._waiting.clear()

    def __reduce__(self) -> tuple[object, ...]:
        """Lets received messages be sent to other processes, where their conversations cannot be used."""
        return Statements, (None,)


class Conversation:
    """A side of a conversation between two services.

    Its statements take effect when their transaction commits: the block of `ServiceClient.transaction`, or the receive
    block of a queue reader. If the router refuses a statement, for example because the far side has ended the
    conversation, the statement becomes a record of service-dead-letters, which `queue-activation dead-letters
    --services` shows.

    Attributes:
        conversation_id: The conversation's identifier, which is also its only secret.
        is_initiator: Whether this side has begun the conversation.
        database: The database of this side's service.
        service: This side's service.
        far_service: The service of the other side.
        conversation_group_id: The group in which this side's messages arrive; None: the conversation's id.
    """

    def __init__(  # noqa: PLR0913 - each is named by the caller
        self,
        statements: Statements,
        *,
        conversation_id: str,
        is_initiator: bool,
        database: str,
        service: str,
        far_service: str,
        conversation_group_id: str | None = None,
        first: dict[str, Any] | None = None,
    ) -> None:
        """Makes no statement. Programs call `ServiceClient.begin` or `ReceivedMessage.conversation`.

        Args:
            statements: Takes the statements of this side.
            conversation_id: See the attributes.
            is_initiator: See the attributes.
            database: See the attributes.
            service: See the attributes.
            far_service: See the attributes.
            conversation_group_id: See the attributes.
            first: Further fields of the first statement's envelope; None if the conversation has begun.
        """
        self.conversation_id = conversation_id
        self.is_initiator = is_initiator
        self.database = database
        self.service = service
        self.far_service = far_service
        self.conversation_group_id = conversation_group_id
        self._statements = statements
        self._first = first or {}
        self._has_begun = first is None
        self._has_ended = False

    def send(self, body: bytes, *, message_type: str | None = None, headers: Headers = ()) -> None:
        """Sends a message to the far service.

        Args:
            body: The body.
            message_type: The name of the message's type; None: `DEFAULT`.
            headers: Kafka record headers, which the receiver gets, too. Headers that the receiver gets with every
                message have reserved names.

        Raises:
            UserError: The statement is not valid or too large, or there are no topics for services, or Kafka refuses.
            RuntimeError: This side has ended the conversation with this object, or the receive block has ended.
            TransactionAbortedError: There is no open transaction, and Kafka did not accept the statement.
            ClientUnusableError: As before, and the client cannot continue.
        """
        if body is not None and not isinstance(body, bytes):
            raise UserError(f"The body is of type {type(body).__name__}; it must be bytes")
        self._say("MESSAGE", body, _checked(headers), message_type_name=message_type)

    def end(self) -> None:
        """Ends this side. The far side gets an EndDialog after all messages. The errors are those of `send`."""
        self._say("END")

    def end_with_error(self, code: int, text: str) -> None:
        """Ends this side because of an error, which the far side gets; messages that are still held are dropped.

        Args:
            code: The code of the error, which the program chooses: a positive number. The codes of the router are
                negative.
            text: The error in words, at most 3,000 characters.

        Raises:
            UserError: The code or the text is not valid; and the errors of `send`.
        """
        if not isinstance(code, int):
            raise UserError(f"The code of an error is of type {type(code).__name__}; it must be int")
        if code <= 0:
            raise UserError(f"The code of an error is {code}; it must be positive")
        self._say("ERROR", error_code=code, error_text=text)

    def set_timer(self, delay_s: float) -> None:
        """Sets the conversation's timer, or sets it anew. After the delay, this side gets a DialogTimer.

        Args:
            delay_s: The delay in seconds, which begins when the statement is sent.

        Raises:
            UserError: The delay is negative or too long; and the errors of `send`.
        """
        if not isinstance(delay_s, int | float):
            raise UserError(f"The delay is of type {type(delay_s).__name__}; it must be a number of seconds")
        if not 0 <= delay_s < math.inf:
            raise UserError(f"The delay is {delay_s} s; it must be 0 or more")
        self._say("TIMER", timer_ms=round(delay_s * 1000))

    def begin(self, to_service: str, *, lifetime_s: int | None = None) -> "Conversation":
        """Begins another conversation of this service, in the same conversation group.

        The answers of both conversations arrive in order, and one reader at a time gets them.

        Args:
            to_service: The service to talk to.
            lifetime_s: The time after which the conversation ends with an error, in seconds; None: no limit.

        Raises:
            UserError: An argument is not valid.
        """
        group = self.conversation_group_id or self.conversation_id
        return begin(self._statements, self.database, self.service, to_service, lifetime_s=lifetime_s, group_id=group)

    def check(self) -> None:
        """Raises UserError if a name or another property of the conversation is not valid."""
        self._envelope("conversation", "END")

    def note(self, statement: Statement) -> None:
        """Records a statement that was made."""
        self._has_begun = True
        self._has_ended = statement.ends

    def take_back(self, statement: Statement) -> None:
        """Records that a statement was not sent after all."""
        self._has_begun = not statement.begins
        self._has_ended = False

    def _say(
        self, kind: str, body: bytes | None = None, headers: tuple[tuple[str, bytes], ...] = (), **fields: Any
    ) -> None:
        if self._has_ended:
            raise RuntimeError(f"This side has ended conversation {self.conversation_id}; it can say nothing more")
        envelope = self._envelope("statement", kind, **fields)
        is_end = kind in ("END", "ERROR")
        self._statements.add(Statement(self, envelope, body, headers, not self._has_begun, is_end))

    def _envelope(self, what: str, kind: str, **fields: Any) -> bytes:
        own = {
            "type": kind,
            "conversation_id": self.conversation_id,
            "is_initiator": self.is_initiator,
            "from_service": self.service,
            "from_database": self.database,
            "to_service": self.far_service,
        }
        first = {} if self._has_begun else self._first
        try:
            return encode_envelope(msgspec.convert(own | first | fields, Envelope))
        except (msgspec.ValidationError, InvalidRecordError) as error:
            raise UserError(f"The {what} is not valid: {by_field(error)}") from None

    def __repr__(self) -> str:
        """Returns the conversation in words, for debugging."""
        arrow = "->" if self.is_initiator else "<-"
        return f"<Conversation {self.conversation_id}: {self.service} {arrow} {self.far_service}>"


def _checked(headers: Headers) -> tuple[tuple[str, bytes], ...]:
    """Returns the headers of a program's message; raises UserError if a header is not valid."""
    found = checked_headers(headers)
    for name, _ in found:
        if name in OWN_HEADERS:
            raise UserError(f"The header {name!r} belongs to each message of a service. Choose another name.")
    return found


def begin(  # noqa: PLR0913 - each is named by the caller
    statements: Statements,
    database: str,
    from_service: str,
    to_service: str,
    *,
    lifetime_s: int | None = None,
    group_id: str | None = None,
    broker_instance: str | None = None,
) -> Conversation:
    """Returns a new conversation, which begins with its first statement; raises UserError if it is not valid."""
    first = {"begin": True, "lifetime_s": lifetime_s, "conversation_group_id": group_id}
    conversation = Conversation(
        statements,
        conversation_id=str(uuid.uuid4()),
        is_initiator=True,
        database=database,
        service=from_service,
        far_service=to_service,
        conversation_group_id=group_id,
        first={**first, "to_broker_instance": broker_instance},
    )
    conversation.check()
    return conversation
