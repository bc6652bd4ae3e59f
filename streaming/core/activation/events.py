"""What can happen to a queue. An event names no queue and no time: whoever applies it knows both."""

from dataclasses import dataclass
from enum import Enum


class RefusedEventError(Exception):
    """An event that a limit forbids: it changes nothing. The message is the reason for the dead letter."""


class ReceiveResult(Enum):
    """How a RECEIVE or GET CONVERSATION GROUP ended, or that it began to wait."""

    MESSAGES = "MESSAGES"
    EMPTY = "EMPTY"
    WAITING = "WAITING"
    GROUP = "GROUP"


@dataclass(slots=True)
class MessageArrived:
    """`count` messages became visible to readers."""

    count: int = 1


@dataclass(slots=True, init=False)
class Receive:
    """A RECEIVE, or a GET CONVERSATION GROUP, which counts as one everywhere (D6).

    Attributes:
        session_id: Who executed it.
        result: Its result, or WAITING.
        messages: How many messages it took; 0 unless the result is MESSAGES.
        where: Whether it looked at a part of the queue only.
        transaction_id: The open transaction it belongs to; None if the statement committed by itself.
        timeout_ms: When a wait ends by itself at the latest; None if only its session's lease ends it.
        unread: How many messages the reader knows to be left; None if it does not know.
    """

    session_id: str
    result: ReceiveResult
    messages: int
    where: bool
    transaction_id: str | None
    timeout_ms: int | None
    unread: int | None

    # Written out, as there are many of them: mypyc leaves the one that a dataclass has by itself to the interpreter.
    def __init__(  # noqa: PLR0913, PLR0917  (a value for each attribute)
        self,
        session_id: str,
        result: ReceiveResult,
        messages: int = 0,
        where: bool = False,
        transaction_id: str | None = None,
        timeout_ms: int | None = None,
        unread: int | None = None,
    ) -> None:
        self.session_id = session_id
        self.result = result
        self.messages = messages
        self.where = where
        self.transaction_id = transaction_id
        self.timeout_ms = timeout_ms
        self.unread = unread


@dataclass(slots=True)
class Commit:
    """A transaction was committed: what it received is gone for good."""

    session_id: str
    transaction_id: str


@dataclass(slots=True)
class Rollback:
    """A transaction was rolled back: what it received is unread again."""

    session_id: str
    transaction_id: str


@dataclass(slots=True)
class SessionAlive:
    """A session that waits or works is still there."""

    session_id: str


@dataclass(slots=True)
class SessionEnded:
    """A session is gone: its wait ends and its open transactions are rolled back."""

    session_id: str


@dataclass(slots=True)
class TaskStarted:
    """A task host runs an activated task; repeated while it lives."""

    task_id: str
    host: str | None = None


@dataclass(slots=True)
class TaskExited:
    """An activated task has exited; with a negative code: killed by that signal; None: by itself, as far as known."""

    task_id: str
    exit_code: int | None = None


@dataclass(slots=True)
class TaskFailedToStart:
    """An activated task could not be started, and why, if its host says so."""

    task_id: str
    reason: str | None = None


@dataclass(slots=True)
class ActivationOptions:
    """The ACTIVATION clause of CREATE or ALTER QUEUE; None where the clause does not name a part."""

    status: bool | None = None
    procedure_name: str | None = None
    max_queue_readers: int | None = None
    execute_as: str | None = None


@dataclass(slots=True)
class QueueOptions:
    """What CREATE or ALTER QUEUE names; None for what it does not name.

    Attributes:
        status: ON or OFF.
        activation: The ACTIVATION clause.
        drop_activation: ACTIVATION (DROP).
        poison_message_handling: ON or OFF.
        external_activation_timeout_ms: T of this queue; FOREVER_MS never expires.
    """

    status: bool | None = None
    activation: ActivationOptions | None = None
    drop_activation: bool = False
    poison_message_handling: bool | None = None
    external_activation_timeout_ms: int | None = None


@dataclass(slots=True)
class CreateQueue:
    """CREATE QUEUE; of a queue that exists it sets the definition."""

    options: QueueOptions


@dataclass(slots=True)
class AlterQueue:
    """ALTER QUEUE: changes only what it names."""

    options: QueueOptions


@dataclass(slots=True)
class DropQueue:
    """DROP QUEUE: everything about the queue is forgotten."""


@dataclass(slots=True)
class CreateEventNotification:
    """CREATE EVENT NOTIFICATION for QUEUE_ACTIVATION, or a new service for one that exists."""

    notification: str
    service: str | None = None


@dataclass(slots=True)
class DropEventNotification:
    """DROP EVENT NOTIFICATION."""

    notification: str


Event = (
    MessageArrived
    | Receive
    | Commit
    | Rollback
    | SessionAlive
    | SessionEnded
    | TaskStarted
    | TaskExited
    | TaskFailedToStart
    | CreateQueue
    | AlterQueue
    | DropQueue
    | CreateEventNotification
    | DropEventNotification
)

# Only these create a queue nobody has heard of (activation.md, "Creating and dropping").
CREATING_COMMANDS = (CreateQueue, AlterQueue, CreateEventNotification)
CREATING_EVENTS = (MessageArrived, Receive, *CREATING_COMMANDS)
