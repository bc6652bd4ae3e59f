"""The wire: the JSON records of the three input topics, checked once on the way in.

Each class is one `type` of the contract's tables; `msgspec` checks required fields, types and bounds while it decodes.
Producers encode with the same classes, so that there is one place for each field's name.
"""

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from streaming.core.activation import events
from streaming.core.times import FOREVER_MS
from streaming.wire.decoding import Decoder, InvalidRecordError, decode_json

MAX_RECORD_BYTES = 64 * 1024

# Too short to be over the limit, however long the key of a valid name is.
SURELY_SHORT_BYTES = MAX_RECORD_BYTES - 2048

# `[[database.]schema.]object`, each part 1-128 characters without control characters (contract, "All topics").
_PART = r"[^.\x00-\x1f\x7f-\x9f]{1,128}"
_QUEUE_NAME = re.compile(rf"{_PART}(?:\.{_PART}){{0,2}}")

# Identifiers are the sender's own; the limit bounds the state that one record can add.
Identifier = Annotated[str, Meta(min_length=1, max_length=256)]
NotificationName = Annotated[str, Meta(min_length=1, max_length=128)]
# Three parts of 128 characters with their dots, as a queue's name.
ProcedureName = Annotated[str, Meta(min_length=1, max_length=386)]
Count = Annotated[int, Meta(ge=1, le=10**9)]
Unread = Annotated[int, Meta(ge=0, le=10**12)]
TimeoutMs = Annotated[int, Meta(ge=0, le=10**12)]
OnOff = Literal["ON", "OFF"]


# A dictionary is looked up in C, an Enum in Python.
_RESULTS = {result.name: result for result in events.ReceiveResult}


# The collector need not follow what there are most of: nothing in them refers to anything else.
class MessageArrived(Struct, tag="MESSAGE_ARRIVED", tag_field="type", omit_defaults=True, gc=False):
    """`count` messages became visible in the queue."""

    queue: str
    count: Count = 1

    def event(self) -> events.MessageArrived:
        """The core's event."""
        return events.MessageArrived(self.count)


class Receive(Struct, tag="RECEIVE", tag_field="type", omit_defaults=True, gc=False):
    """A RECEIVE statement's result, or that it began to wait."""

    queue: str
    session_id: Identifier
    result: Literal["MESSAGES", "EMPTY", "WAITING"]
    messages: Count | None = None
    where: bool = False
    transaction_id: Identifier | None = None
    timeout_ms: TimeoutMs | None = None
    unread: Unread | None = None

    def event(self) -> events.Receive:
        """The core's event; `messages` of another result than MESSAGES is ignored.

        Raises:
            InvalidRecordError: The result MESSAGES without a number. Checked here, and not by `__post_init__`, which
                takes as long as all the rest of the decoding.
        """
        messages = 0
        if self.result == "MESSAGES":
            if self.messages is None:
                raise InvalidRecordError("Object missing required field `messages`, which the result MESSAGES needs")
            messages = self.messages
        return events.Receive(
            self.session_id,
            _RESULTS[self.result],
            messages,
            self.where,
            self.transaction_id,
            self.timeout_ms,
            self.unread,
        )


class GetConversationGroup(Struct, tag="GET_CONVERSATION_GROUP", tag_field="type", omit_defaults=True):
    """A GET CONVERSATION GROUP statement's result, or that it began to wait."""

    queue: str
    session_id: Identifier
    result: Literal["GROUP", "EMPTY", "WAITING"]
    transaction_id: Identifier | None = None
    timeout_ms: TimeoutMs | None = None
    unread: Unread | None = None

    def event(self) -> events.Receive:
        """The core's event: it counts as a RECEIVE without WHERE (D6)."""
        return events.Receive(
            self.session_id,
            _RESULTS[self.result],
            transaction_id=self.transaction_id,
            timeout_ms=self.timeout_ms,
            unread=self.unread,
        )


class Commit(Struct, tag="COMMIT", tag_field="type"):
    """A transaction was committed."""

    queue: str
    session_id: Identifier
    transaction_id: Identifier

    def event(self) -> events.Commit:
        """The core's event."""
        return events.Commit(self.session_id, self.transaction_id)


class Rollback(Struct, tag="ROLLBACK", tag_field="type"):
    """A transaction was rolled back."""

    queue: str
    session_id: Identifier
    transaction_id: Identifier

    def event(self) -> events.Rollback:
        """The core's event."""
        return events.Rollback(self.session_id, self.transaction_id)


class SessionAlive(Struct, tag="SESSION_ALIVE", tag_field="type"):
    """A session that waits or works is still there."""

    queue: str
    session_id: Identifier

    def event(self) -> events.SessionAlive:
        """The core's event."""
        return events.SessionAlive(self.session_id)


class SessionEnded(Struct, tag="SESSION_ENDED", tag_field="type"):
    """A session is gone."""

    queue: str
    session_id: Identifier

    def event(self) -> events.SessionEnded:
        """The core's event."""
        return events.SessionEnded(self.session_id)


class TaskStarted(Struct, tag="TASK_STARTED", tag_field="type", omit_defaults=True):
    """A task host runs an activated task."""

    queue: str
    task_id: Identifier
    host: Identifier | None = None

    def event(self) -> events.TaskStarted:
        """The core's event."""
        return events.TaskStarted(self.task_id, self.host)


class TaskExited(Struct, tag="TASK_EXITED", tag_field="type", omit_defaults=True):
    """An activated task has exited; a negative code: killed by that signal."""

    queue: str
    task_id: Identifier
    exit_code: Annotated[int, Meta(ge=-(2**31), lt=2**31)] | None = None
    reason: str | None = None

    def event(self) -> events.TaskExited:
        """The core's event."""
        return events.TaskExited(self.task_id, self.exit_code)


class TaskFailedToStart(Struct, tag="TASK_FAILED_TO_START", tag_field="type", omit_defaults=True):
    """An activated task could not be started."""

    queue: str
    task_id: Identifier
    exit_code: Annotated[int, Meta(ge=-(2**31), lt=2**31)] | None = None
    reason: str | None = None

    def event(self) -> events.TaskFailedToStart:
        """The core's event."""
        return events.TaskFailedToStart(self.task_id, self.reason)


class ActivationFields(Struct, omit_defaults=True):
    """The `activation` object of CREATE_QUEUE and ALTER_QUEUE."""

    status: OnOff | UnsetType = UNSET
    procedure_name: ProcedureName | None = None
    max_queue_readers: Annotated[int, Meta(ge=0, le=32767)] | None = None
    execute_as: Identifier | None = None

    def options(self) -> events.ActivationOptions:
        """The core's form of it."""
        return events.ActivationOptions(
            _is_on(self.status), self.procedure_name, self.max_queue_readers, self.execute_as
        )


class CreateQueue(Struct, tag="CREATE_QUEUE", tag_field="type", omit_defaults=True):
    """CREATE QUEUE."""

    queue: str
    status: OnOff | UnsetType = UNSET
    activation: ActivationFields | Literal["DROP"] | UnsetType = UNSET
    poison_message_handling: OnOff | UnsetType = UNSET
    external_activation_timeout_ms: Annotated[int, Meta(ge=1, le=86_400_000)] | UnsetType | None = UNSET

    def event(self) -> events.Event:
        """The core's event."""
        return events.CreateQueue(self.options())

    def options(self) -> events.QueueOptions:
        """The core's form of what the command names."""
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


class AlterQueue(CreateQueue, tag="ALTER_QUEUE", tag_field="type", omit_defaults=True):
    """ALTER QUEUE: changes only what it names."""

    def event(self) -> events.Event:
        """The core's event."""
        return events.AlterQueue(self.options())


class DropQueue(Struct, tag="DROP_QUEUE", tag_field="type"):
    """DROP QUEUE."""

    queue: str

    def event(self) -> events.DropQueue:
        """The core's event."""
        return events.DropQueue()


class CreateEventNotification(Struct, tag="CREATE_EVENT_NOTIFICATION", tag_field="type", omit_defaults=True):
    """CREATE EVENT NOTIFICATION ... FOR QUEUE_ACTIVATION."""

    queue: str
    notification: NotificationName
    service: Identifier | None = None

    def event(self) -> events.CreateEventNotification:
        """The core's event."""
        return events.CreateEventNotification(self.notification, self.service)


class DropEventNotification(Struct, tag="DROP_EVENT_NOTIFICATION", tag_field="type"):
    """DROP EVENT NOTIFICATION."""

    queue: str
    notification: NotificationName

    def event(self) -> events.DropEventNotification:
        """The core's event."""
        return events.DropEventNotification(self.notification)


TaskRecord = TaskStarted | TaskExited | TaskFailedToStart
ReceiveRecord = Receive | GetConversationGroup | Commit | Rollback | SessionAlive | SessionEnded | TaskRecord
CommandRecord = CreateQueue | AlterQueue | DropQueue | CreateEventNotification | DropEventNotification
InputRecord = MessageArrived | ReceiveRecord | CommandRecord

_Record = TypeVar("_Record", bound=InputRecord)
# How like a known field's name, of 1, an unknown one must be to count as misspelt: `procedure` is (0.783), and
# `queue_id` is not (0.769).
_MISSPELT = 0.78
# Nobody misspells more, and to compare each costs time.
_MAX_COMPARED = 50


class _CommandDecoder:
    """Decodes commands, and refuses fields that look misspelt: a definition would silently be another one than meant.

    All other unknown fields are ignored, as in every record.
    """

    def __init__(self) -> None:
        self._command = msgspec.json.Decoder(CommandRecord)
        self._fields = msgspec.json.Decoder(dict[str, msgspec.Raw])

    def decode(self, value: bytes | str, /) -> CommandRecord:
        """Decodes a command; raises msgspec.ValidationError, too, for a field that looks misspelt."""
        command: CommandRecord = self._command.decode(value)
        fields = self._fields.decode(value)
        inner = ActivationFields.__struct_fields__ if isinstance(command, CreateQueue) else ()
        _refuse_misspelt(fields, ("type", *command.__struct_fields__), inner)
        if isinstance(command, CreateQueue) and isinstance(command.activation, ActivationFields):
            _refuse_misspelt(self._fields.decode(fields["activation"]), inner, ())
        return command


def _refuse_misspelt(fields: Iterable[str], known: Collection[str], inner: Collection[str]) -> None:
    for field in islice((field for field in fields if field not in known), _MAX_COMPARED):
        if field in inner:
            raise msgspec.ValidationError(f"unknown field `{field}`: it belongs in `activation`")
        for meant in get_close_matches(field.lower(), [*known, *inner], 1, _MISSPELT):
            # With a word more, as in `notification_id`, it is another name.
            if f"_{meant}_" not in f"_{field}_":
                raise msgspec.ValidationError(f"unknown field `{field}`: is `{meant}` meant?")


arrivals_decoder = msgspec.json.Decoder(MessageArrived)
receives_decoder = msgspec.json.Decoder(ReceiveRecord)
commands_decoder = _CommandDecoder()


def _is_on(value: OnOff | UnsetType) -> bool | None:
    return None if isinstance(value, UnsetType) else value == "ON"


def is_queue_name(name: str) -> bool:
    """Whether a name has one to three parts of 1-128 characters without control characters."""
    return _QUEUE_NAME.fullmatch(name) is not None


def decode(decoder: Decoder[_Record], key: bytes | None, value: bytes | None, value_bytes: int) -> _Record:
    """Decodes and checks one record.

    Args:
        decoder: The decoder of the record's topic.
        key: The record's key.
        value: The record's value, possibly cut.
        value_bytes: The length of the whole value.

    Raises:
        InvalidRecordError: It breaks the contract; the text says how.
    """
    if key is None:
        raise InvalidRecordError("the record has no key; it must be the queue's name")
    if value is not None and len(key) + value_bytes > MAX_RECORD_BYTES:
        raise InvalidRecordError(f"the record has {len(key) + value_bytes} bytes, more than {MAX_RECORD_BYTES}")
    record = decode_json(decoder, value)
    if not is_queue_name(record.queue):
        raise InvalidRecordError(
            "`queue` must have one to three parts of 1-128 characters, none of them a control character"
        )
    if record.queue.encode() != key:
        raise InvalidRecordError("the record's key differs from its `queue`")
    record.event()  # what no type can say
    return record
