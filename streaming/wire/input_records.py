"""The JSON records of the three input topics.

Each class is one record `type` of docs/contract.md. While `msgspec` decodes a record, it checks required fields, types
and bounds. Producers encode with the same classes, so each field's name is in one place.
"""

import re
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from streaming.core.activation import events
from streaming.core.times import FOREVER_MS
from streaming.wire.misspelt import refuse_misspelt
from streaming.wire.record_decoders import Decoder, InvalidRecordError, decode_json, record_type

MAX_RECORD_BYTES = 64 * 1024

# A value of this length is within the limit with the key of any valid name.
SURELY_SHORT_BYTES = MAX_RECORD_BYTES - 2048

# `[[database.]schema.]object`; each part has 1-128 characters and no control characters.
_PART = r"[^.\x00-\x1f\x7f-\x9f]{1,128}"
_QUEUE_NAME = re.compile(rf"{_PART}(?:\.{_PART}){{0,2}}")
# The rule for a queue's name, in the words of error messages.
QUEUE_NAME_RULE = "one to three parts of 1-128 characters with dots between them, and no control characters"

# Senders choose identifiers freely. The limit bounds the state that one record can add.
MAX_IDENTIFIER_LENGTH = 256
Identifier = Annotated[str, Meta(min_length=1, max_length=MAX_IDENTIFIER_LENGTH)]
NotificationName = Annotated[str, Meta(min_length=1, max_length=128)]
# Three parts of 128 characters and two dots, as in a queue's name.
ProcedureName = Annotated[str, Meta(min_length=1, max_length=386)]
MAX_COUNT = 10**9
Count = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
Unread = Annotated[int, Meta(ge=0, le=10**12)]
MAX_TIMEOUT_MS = 10**12
OnOff = Literal["ON", "OFF"]


# For speed: the look-up in a dictionary runs in C, that of an Enum in Python.
_RESULTS = {result.name: result for result in events.ReceiveResult}


class _Record(Struct, tag_field="type", tag=record_type, omit_defaults=True):
    """A record of an input topic."""

    queue: str


# gc=False for the most frequent records, so the garbage collector skips them: they cannot be part of a cycle.
class MessageArrived(_Record, gc=False):
    """`count` messages became visible in the queue."""

    count: Count = 1

    def event(self) -> events.MessageArrived:
        """Returns the record as an event of the core."""
        return events.MessageArrived(self.count)


class Receive(_Record, gc=False):
    """The result of a RECEIVE statement, or its wait."""

    session_id: Identifier
    result: Literal["MESSAGES", "EMPTY", "WAITING"]
    messages: int | None = None
    where: bool = False
    transaction_id: str | None = None
    timeout_ms: int | None = None
    unread: Unread | None = None

    def event(self) -> events.Receive:
        """Returns the record as an event of the core, without fields that do not apply to its result.

        They are left out because some languages write 0 and "" into unset fields.

        Raises:
            InvalidRecordError: A field that the result uses is missing or out of bounds. `__post_init__` does not check
                this, because it would take as long as all the rest of the decoding.
        """
        messages, transaction_id = 0, None
        if self.result == "MESSAGES":
            messages, transaction_id = self._messages(), self.transaction_id
            if transaction_id is not None and not 1 <= len(transaction_id) <= MAX_IDENTIFIER_LENGTH:
                raise InvalidRecordError(
                    f"Expected `str` of length 1 to {MAX_IDENTIFIER_LENGTH} - at `$.transaction_id`"
                )
        result, wait_ms = _RESULTS[self.result], _wait_ms(self.result, self.timeout_ms)
        return events.Receive(self.session_id, result, messages, self.where, transaction_id, wait_ms, self.unread)

    def _messages(self) -> int:
        if self.messages is None:
            raise InvalidRecordError("Object missing required field `messages`, which the result MESSAGES requires")
        if not 1 <= self.messages <= MAX_COUNT:
            raise InvalidRecordError(f"Expected `int` from 1 to {MAX_COUNT} - at `$.messages`")
        return self.messages


class GetConversationGroup(_Record):
    """The result of a GET CONVERSATION GROUP statement, or its wait."""

    session_id: Identifier
    result: Literal["GROUP", "EMPTY", "WAITING"]
    transaction_id: str | None = None
    timeout_ms: int | None = None
    unread: Unread | None = None

    def event(self) -> events.Receive:
        """Returns the record as an event of the core, a RECEIVE without WHERE (D6); raises as `Receive.event` does."""
        timeout_ms = _wait_ms(self.result, self.timeout_ms)
        return events.Receive(self.session_id, _RESULTS[self.result], timeout_ms=timeout_ms, unread=self.unread)


class Observed(_Record):
    """A report of an observer about a consumer group that reports nothing itself."""

    unread: Unread
    one_more: bool | None
    members: Unread
    received: Unread = 0

    def event(self) -> events.GroupObserved:
        """Returns the record as an event of the core."""
        return events.GroupObserved(self.unread, self.one_more, self.members, self.received)


class Commit(_Record):
    """A transaction was committed."""

    session_id: Identifier
    transaction_id: Identifier

    def event(self) -> events.Commit:
        """Returns the record as an event of the core."""
        return events.Commit(self.session_id, self.transaction_id)


class Rollback(_Record):
    """A transaction was rolled back."""

    session_id: Identifier
    transaction_id: Identifier
    interrupted: bool = False

    def event(self) -> events.Rollback:
        """Returns the record as an event of the core."""
        return events.Rollback(self.session_id, self.transaction_id, self.interrupted)


class SessionAlive(_Record):
    """A session that waits or has an open transaction is still alive."""

    session_id: Identifier

    def event(self) -> events.SessionAlive:
        """Returns the record as an event of the core."""
        return events.SessionAlive(self.session_id)


class SessionEnded(_Record):
    """A session has ended, or a program with all its sessions."""

    session_id: Identifier
    interrupted: bool = False

    def event(self) -> events.SessionEnded:
        """Returns the record as an event of the core."""
        return events.SessionEnded(self.session_id, self.interrupted)


class TaskStarted(_Record):
    """A task host runs an activated task."""

    task_id: Identifier
    host: Identifier | None = None

    def event(self) -> events.TaskStarted:
        """Returns the record as an event of the core."""
        return events.TaskStarted(self.task_id, self.host)


class TaskExited(_Record):
    """An activated task has exited. Exit code -9 means that signal 9 killed it."""

    task_id: Identifier
    exit_code: Annotated[int, Meta(ge=-(2**31), lt=2**31)] | None = None
    reason: str | None = None
    interrupted: bool = False

    def event(self) -> events.TaskExited:
        """Returns the record as an event of the core."""
        return events.TaskExited(self.task_id, self.exit_code, self.reason, self.interrupted)


class TaskFailedToStart(_Record):
    """An activated task could not be started."""

    task_id: Identifier
    exit_code: int | None = None
    reason: str | None = None
    interrupted: bool = False

    def event(self) -> events.TaskFailedToStart:
        """Returns the record as an event of the core."""
        return events.TaskFailedToStart(self.task_id, self.reason, self.interrupted)


class ActivationFields(Struct, omit_defaults=True):
    """The `activation` object of CREATE_QUEUE and ALTER_QUEUE."""

    status: OnOff | UnsetType = UNSET
    procedure_name: ProcedureName | None = None
    max_queue_readers: Annotated[int, Meta(ge=0, le=32767)] | None = None
    execute_as: Identifier | None = None

    def options(self) -> events.ActivationOptions:
        """Returns the options in the core's form."""
        return events.ActivationOptions(
            _is_on(self.status), self.procedure_name, self.max_queue_readers, self.execute_as
        )


class CreateQueue(_Record):
    """CREATE QUEUE."""

    status: OnOff | UnsetType = UNSET
    activation: ActivationFields | Literal["DROP"] | UnsetType = UNSET
    poison_message_handling: OnOff | UnsetType = UNSET
    external_activation_timeout_ms: Annotated[int, Meta(ge=1, le=86_400_000)] | UnsetType | None = UNSET

    def event(self) -> events.Event:
        """Returns the record as an event of the core."""
        return events.CreateQueue(self.options())

    def options(self) -> events.QueueOptions:
        """Returns the named options in the core's form."""
        timeout_ms = self.external_activation_timeout_ms
        return events.QueueOptions(
            status=_is_on(self.status),
            activation=self.activation.options() if isinstance(self.activation, ActivationFields) else None,
            drop_activation=self.activation == "DROP",
            poison_message_handling=_is_on(self.poison_message_handling),
            external_activation_timeout_ms=(
                None if isinstance(timeout_ms, UnsetType) else FOREVER_MS if timeout_ms is None else timeout_ms
            ),
        )


class AlterQueue(CreateQueue):
    """ALTER QUEUE: changes only the options it names."""

    def event(self) -> events.Event:
        """Returns the record as an event of the core."""
        return events.AlterQueue(self.options())


class DropQueue(_Record):
    """DROP QUEUE."""

    def event(self) -> events.DropQueue:
        """Returns the record as an event of the core."""
        return events.DropQueue()


class CreateEventNotification(_Record):
    """CREATE EVENT NOTIFICATION ... FOR QUEUE_ACTIVATION."""

    notification: NotificationName
    service: Identifier | None = None

    def event(self) -> events.CreateEventNotification:
        """Returns the record as an event of the core."""
        return events.CreateEventNotification(self.notification, self.service)


class DropEventNotification(_Record):
    """DROP EVENT NOTIFICATION."""

    notification: NotificationName

    def event(self) -> events.DropEventNotification:
        """Returns the record as an event of the core."""
        return events.DropEventNotification(self.notification)


TaskRecord = TaskStarted | TaskExited | TaskFailedToStart
SessionRecord = Receive | GetConversationGroup | Commit | Rollback | SessionAlive | SessionEnded
ReceiveRecord = SessionRecord | Observed | TaskRecord
CommandRecord = CreateQueue | AlterQueue | DropQueue | CreateEventNotification | DropEventNotification
InputRecord = MessageArrived | ReceiveRecord | CommandRecord

_Input = TypeVar("_Input", bound=InputRecord)


class _CommandDecoder:
    """Decodes commands, and refuses fields that look misspelt.

    If such a field were ignored, the definition would silently differ from the user's intention. All other unknown
    fields are ignored, as in every record.
    """

    def __init__(self) -> None:
        self._command = msgspec.json.Decoder(CommandRecord)
        self._fields = msgspec.json.Decoder(dict[str, msgspec.Raw])

    def decode(self, value: bytes | str, /) -> CommandRecord:
        """Decodes a command; also raises msgspec.ValidationError for a field that looks misspelt."""
        command: CommandRecord = self._command.decode(value)
        fields = self._fields.decode(value)
        inner = ActivationFields.__struct_fields__ if isinstance(command, CreateQueue) else ()
        refuse_misspelt(fields, ("type", *command.__struct_fields__), inner)
        if isinstance(command, CreateQueue) and isinstance(command.activation, ActivationFields):
            refuse_misspelt(self._fields.decode(fields["activation"]), inner, ())
        return command


arrivals_decoder = msgspec.json.Decoder(MessageArrived)
receives_decoder = msgspec.json.Decoder(ReceiveRecord)
commands_decoder = _CommandDecoder()


def _wait_ms(result: str, timeout_ms: int | None) -> int | None:
    """Returns the longest duration of a wait; None without a wait; raises InvalidRecordError if out of bounds."""
    if result != "WAITING" or timeout_ms is None:
        return None
    if not 0 <= timeout_ms <= MAX_TIMEOUT_MS:
        raise InvalidRecordError(f"Expected `int` from 0 to {MAX_TIMEOUT_MS} - at `$.timeout_ms`")
    return timeout_ms


def _is_on(value: OnOff | UnsetType) -> bool | None:
    return None if isinstance(value, UnsetType) else value == "ON"


def is_queue_name(name: str) -> bool:
    """Returns whether a name has one to three parts of 1-128 characters without control characters."""
    return _QUEUE_NAME.fullmatch(name) is not None


def decode(decoder: Decoder[_Input], key: bytes | None, value: bytes | None, value_bytes: int) -> _Input:
    """Decodes and checks one record.

    Args:
        decoder: The decoder of the record's topic.
        key: The record's key.
        value: The record's value, which may be cut.
        value_bytes: The length of the whole value.

    Raises:
        InvalidRecordError: The record breaks the contract. The message says how.
    """
    if key is None:
        raise InvalidRecordError("the record has no key; it must be the queue's name")
    if value is not None and len(key) + value_bytes > MAX_RECORD_BYTES:
        raise InvalidRecordError(f"the record has {len(key) + value_bytes} bytes, more than {MAX_RECORD_BYTES}")
    record = decode_json(decoder, value)
    if not is_queue_name(record.queue):
        raise InvalidRecordError(f"`queue` must have {QUEUE_NAME_RULE}")
    if record.queue.encode() != key:
        raise InvalidRecordError("the record's key differs from its `queue`")
    record.event()  # for the checks that types cannot express
    return record
