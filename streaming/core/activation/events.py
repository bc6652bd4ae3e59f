"""The events of a queue. An event has no queue and no time: the caller that applies the event knows them."""

from dataclasses import dataclass
from enum import Enum

from streaming.core.times import FOREVER_MS


class RefusedEventError(Exception):
    """An event that a limit forbids. The event changes nothing. The error's text is the reason in the dead letter."""


class ReceiveResult(Enum):
    """The result of a RECEIVE or GET CONVERSATION GROUP. WAITING means that the statement began to wait."""

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
    """A RECEIVE, or a GET CONVERSATION GROUP, which counts as a RECEIVE everywhere (D6).

    Attributes:
        session_id: The session that executed the statement.
        result: The statement's result, or WAITING.
        messages: The number of messages that the statement received; 0 unless the result is MESSAGES.
        where: Whether the statement looked at only a part of the queue.
        transaction_id: The open transaction of the statement; None if the statement committed by itself.
        timeout_ms: The longest wait, in milliseconds; None if only the session's lease ends the wait.
        unread: The number of messages left, as the reader counted them; None: unknown.
        reported_ms: When the report was written, in the shard's time; FOREVER_MS: unknown.
    """

    session_id: str
    result: ReceiveResult
    messages: int
    where: bool
    transaction_id: str | None
    timeout_ms: int | None
    unread: int | None
    reported_ms: int

    # Written out for speed, since there are many such events: mypyc does not compile a dataclass's own __init__.
    def __init__(  # noqa: PLR0913, PLR0917  (a value for each attribute)
        self,
        session_id: str,
        result: ReceiveResult,
        messages: int = 0,
        where: bool = False,
        transaction_id: str | None = None,
        timeout_ms: int | None = None,
        unread: int | None = None,
        reported_ms: int = FOREVER_MS,
    ) -> None:
        self.session_id = session_id
        self.result = result
        self.messages = messages
        self.where = where
        self.transaction_id = transaction_id
        self.timeout_ms = timeout_ms
        self.unread = unread
        self.reported_ms = reported_ms


@dataclass(slots=True)
class GroupObserved:
    """An observer's report on the consumer group that reads the queue. A lost or repeated report does no harm.

    Attributes:
        unread: The number of messages that the group has not committed.
        one_more: Whether one more reader would have work; None: unknown.
        members: The number of the group's members.
        received: The number of messages that the group has committed since the observer's last report.
        reported_ms: When the report was written, as in `Receive`.
    """

    unread: int
    one_more: bool | None
    members: int
    received: int = 0
    reported_ms: int = FOREVER_MS


@dataclass(slots=True)
class Commit:
    """A transaction was committed: its messages are gone for good."""

    session_id: str
    transaction_id: str


@dataclass(slots=True)
class Rollback:
    """A transaction was rolled back: its messages are unread again.

    Attributes:
        session_id: The transaction's session.
        transaction_id: The transaction's id.
        interrupted: Whether a stop or an outage was the cause, so that the rollback says nothing about the messages.
    """

    session_id: str
    transaction_id: str
    interrupted: bool = False


@dataclass(slots=True)
class SessionAlive:
    """A session that waits or has an open transaction is still alive."""

    session_id: str


@dataclass(slots=True)
class SessionEnded:
    """A session, or a program with all its sessions, has ended: waits end, and open transactions are rolled back.

    Attributes:
        session_id: The session or the program.
        interrupted: Whether the session was stopped, or ended in an outage, as in `Rollback`.
    """

    session_id: str
    interrupted: bool = False


@dataclass(slots=True)
class ReportsLost:
    """Kafka deleted reports before the monitor read them. Some of the reports may have been about this queue."""


@dataclass(slots=True)
class TaskStarted:
    """A task host runs an activated task. The host repeats this event while the task runs."""

    task_id: str
    host: str | None = None


@dataclass(slots=True)
class TaskExited:
    """An activated task has exited.

    Attributes:
        task_id: The task.
        exit_code: -9 if signal 9 killed the task. None: the code is unknown, and the task counts as having exited by
            itself.
        reason: A further text of the host, such as the last line of the task's output.
        interrupted: Whether the host has ended the task because the host itself is being stopped.
    """

    task_id: str
    exit_code: int | None = None
    reason: str | None = None
    interrupted: bool = False


@dataclass(slots=True)
class TaskFailedToStart:
    """An activated task could not be started.

    Attributes:
        task_id: The task.
        reason: The host's reason, if it gave one.
        interrupted: Whether the host did not start the task because the host is being stopped.
    """

    task_id: str
    reason: str | None = None
    interrupted: bool = False


@dataclass(slots=True)
class ActivationOptions:
    """The ACTIVATION clause of CREATE or ALTER QUEUE; None for each part that the clause does not name."""

    status: bool | None = None
    procedure_name: str | None = None
    max_queue_readers: int | None = None
    execute_as: str | None = None


@dataclass(slots=True)
class QueueOptions:
    """The options of CREATE or ALTER QUEUE; None for each option that the statement does not name.

    Attributes:
        status: ON or OFF.
        activation: The ACTIVATION clause.
        drop_activation: ACTIVATION (DROP).
        poison_message_handling: ON or OFF.
        external_activation_timeout_ms: T of this queue; FOREVER_MS: never expires.
    """

    status: bool | None = None
    activation: ActivationOptions | None = None
    drop_activation: bool = False
    poison_message_handling: bool | None = None
    external_activation_timeout_ms: int | None = None


@dataclass(slots=True)
class CreateQueue:
    """CREATE QUEUE. If the queue exists, the command replaces the definition and keeps the event notifications."""

    options: QueueOptions


@dataclass(slots=True)
class AlterQueue:
    """ALTER QUEUE. The command changes only the options that it names."""

    options: QueueOptions


@dataclass(slots=True)
class DropQueue:
    """DROP QUEUE: removes the queue with all its state."""


@dataclass(slots=True)
class CreateEventNotification:
    """CREATE EVENT NOTIFICATION for QUEUE_ACTIVATION. If the event notification exists, only its service changes."""

    notification: str
    service: str | None = None


@dataclass(slots=True)
class DropEventNotification:
    """DROP EVENT NOTIFICATION."""

    notification: str


Event = (
    MessageArrived
    | Receive
    | GroupObserved
    | Commit
    | Rollback
    | SessionAlive
    | SessionEnded
    | ReportsLost
    | TaskStarted
    | TaskExited
    | TaskFailedToStart
    | CreateQueue
    | AlterQueue
    | DropQueue
    | CreateEventNotification
    | DropEventNotification
)

# Only these events create a queue that does not exist yet.
CREATING_COMMANDS = (CreateQueue, AlterQueue, CreateEventNotification)
CREATING_EVENTS = (MessageArrived, Receive, GroupObserved, *CREATING_COMMANDS)
