"""A message as a queue reader receives it."""

from dataclasses import dataclass, field

from producers.conversations import Conversation, Statements
from streaming.errors import UserError
from streaming.wire.delivered import KindName, kind_of, read_error

_OF_CONVERSATION = ("conversation_id", "is_initiator", "database", "service", "from_service")


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message of a queue.

    Attributes:
        value: The body; empty if the record has none.
        key: The record's key: the conversation group, as bytes; None if the message belongs to no group.
        headers: Kafka record headers; none if the name of a header is not UTF-8, which Kafka's client cannot decode.
        partition: The partition of the queue's topic.
        offset: The offset in the partition.
        timestamp_ms: The record's timestamp in milliseconds since 1970.
        statements: Takes the statements of the message's conversation.
    """

    value: bytes
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int
    offset: int
    timestamp_ms: int
    statements: Statements = field(repr=False, compare=False)

    @property
    def conversation_group_id(self) -> str | None:
        """The conversation group. Bytes that are not UTF-8 are escaped with their numbers."""
        return None if self.key is None else self.key.decode(errors="backslashreplace")

    @property
    def conversation_id(self) -> str | None:
        """The conversation; None if the message belongs to no conversation between services."""
        return self._texts().get("conversation_id")

    @property
    def message_type(self) -> str | None:
        """The name of the message's type; None if the message belongs to no conversation between services."""
        return self._texts().get("message_type_name")

    @property
    def kind(self) -> KindName:
        """The kind: MESSAGE of a program, or END, ERROR or TIMER of the conversation."""
        return kind_of(self.message_type)

    @property
    def sequence_number(self) -> int | None:
        """The number in the conversation and direction, from 0; None for a message without number, such as a TIMER."""
        number = self._texts().get("message_sequence_number")
        return None if number is None else int(number)

    @property
    def error(self) -> tuple[int, str] | None:
        """The code and the text of an ERROR; None for another kind.

        Raises:
            InvalidRecordError: A ValueError: the body of the ERROR is not valid.
        """
        return read_error(self.value) if self.kind == "ERROR" else None

    @property
    def conversation(self) -> Conversation:
        """The receiver's side of the conversation. Its statements are sent when the receive block commits.

        Each message has an object of its own. If this side has ended the conversation, an answer to a later message
        does not fail here, but the router refuses it.

        Raises:
            UserError: The message belongs to no conversation between services.
        """
        texts = self._texts()
        missing = [name for name in _OF_CONVERSATION if name not in texts]
        if missing:
            raise UserError(
                f"The message at offset {self.offset} of partition {self.partition} belongs to no conversation between "
                f"services: it has no header {', '.join(missing)}. It was sent to the queue and not to a service, for "
                "which there is ServiceClient. Skip messages whose `conversation_id` is None: they do not come again"
            )
        return Conversation(
            self.statements,
            conversation_id=texts["conversation_id"],
            is_initiator=texts["is_initiator"] != "true",
            database=texts["database"],
            service=texts["service"],
            far_service=texts["from_service"],
            conversation_group_id=self.conversation_group_id,
        )

    def _texts(self) -> dict[str, str]:
        return {name: value.decode(errors="backslashreplace") for name, value in self.headers if value is not None}
