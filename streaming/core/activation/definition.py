"""The definition of a queue, as CREATE QUEUE, ALTER QUEUE and the event notification statements set it."""

from dataclasses import dataclass, replace

from streaming.core.activation.events import (
    AlterQueue,
    CreateEventNotification,
    CreateQueue,
    DropEventNotification,
    QueueOptions,
    RefusedEventError,
)
from streaming.core.activation.room import text_bytes
from streaming.core.activation.settings import DEFAULT_NOTIFICATION, MAX_EVENT_NOTIFICATIONS

# The commands that change a definition; DropQueue removes it.
DefiningCommand = CreateQueue | AlterQueue | CreateEventNotification | DropEventNotification


@dataclass(slots=True)
class ActivationClause:
    """The ACTIVATION clause of a queue. CREATE QUEUE without MAX_QUEUE_READERS allows one reader."""

    is_on: bool = True
    procedure_name: str | None = None
    max_queue_readers: int = 1
    execute_as: str | None = None


@dataclass(slots=True, init=False)
class QueueDefinition:
    """A queue's definition.

    Attributes:
        is_automatic: True if an event created the queue and no CREATE QUEUE has followed.
        is_on: STATUS. While the queue is OFF, no reader can receive.
        handles_poison: POISON_MESSAGE_HANDLING.
        external_activation_timeout_ms: T of this queue. None: the default of the settings; FOREVER_MS: never expires.
        activation: The ACTIVATION clause; None without one.
        notifications: Event notifications for QUEUE_ACTIVATION, name -> service, in order of creation.
    """

    is_automatic: bool
    is_on: bool
    handles_poison: bool
    external_activation_timeout_ms: int | None
    activation: ActivationClause | None
    notifications: dict[str, str | None]

    # Written out, as in events.Receive.
    def __init__(  # noqa: PLR0913, PLR0917  (a value for each attribute)
        self,
        is_automatic: bool = False,
        is_on: bool = True,
        handles_poison: bool = True,
        external_activation_timeout_ms: int | None = None,
        activation: ActivationClause | None = None,
        notifications: dict[str, str | None] | None = None,
    ) -> None:
        self.is_automatic = is_automatic
        self.is_on = is_on
        self.handles_poison = handles_poison
        self.external_activation_timeout_ms = external_activation_timeout_ms
        self.activation = activation
        self.notifications = {} if notifications is None else notifications

    @classmethod
    def automatic(cls, has_default_notification: bool) -> "QueueDefinition":
        """Returns the definition of a queue that an event creates."""
        return cls(is_automatic=True, notifications={DEFAULT_NOTIFICATION: None} if has_default_notification else {})

    def is_as_created(self, has_default_notification: bool) -> bool:
        """Returns whether this is still the definition that an event creates."""
        return self.is_automatic and self == QueueDefinition.automatic(has_default_notification)

    def copy(self) -> "QueueDefinition":
        """Returns an independent copy. Both share the ACTIVATION clause, because ALTER QUEUE replaces the clause."""
        return replace(self, notifications=dict(self.notifications))

    def texts_bytes(self) -> int:
        """Returns how many bytes the texts take in a snapshot. The rest of the definition is short."""
        clause = self.activation
        size_bytes = 0 if clause is None else text_bytes(clause.procedure_name) + text_bytes(clause.execute_as)
        for name, service in self.notifications.items():
            size_bytes += text_bytes(name) + text_bytes(service)
        return size_bytes

    @property
    def is_activation_on(self) -> bool:
        """Returns whether the queue has internal activation that is ON."""
        return self.activation is not None and self.activation.is_on

    @property
    def procedure_name(self) -> str | None:
        """Returns the procedure that internal activation starts; None without internal activation."""
        return self.activation.procedure_name if self.activation is not None else None

    @property
    def is_monitored(self) -> bool:
        """Returns whether the queue has a monitor, by the rule of sys.dm_broker_queue_monitors."""
        return self.is_on and (self.is_activation_on or bool(self.notifications))

    def timeout_ms(self, default_ms: int) -> int:
        """Returns T, or FOREVER_MS if T never expires (D2)."""
        own_ms = self.external_activation_timeout_ms
        return default_ms if own_ms is None else own_ms

    def apply(self, command: DefiningCommand) -> None:
        """Applies a command. Raises RefusedEventError if the command would add too many event notifications."""
        if isinstance(command, CreateQueue):
            self._create(command.options)
        elif isinstance(command, AlterQueue):
            self._alter(command.options)
        elif isinstance(command, CreateEventNotification):
            self._create_notification(command.notification, command.service)
        else:
            self.notifications.pop(command.notification, None)

    def _create(self, options: QueueOptions) -> None:
        """Applies CREATE QUEUE to an existing queue. Event notifications stay, except the automatic `default`."""
        if self.is_automatic:
            self.notifications.pop(DEFAULT_NOTIFICATION, None)
        self.is_automatic = False
        self.is_on = True
        self.handles_poison = True
        self.external_activation_timeout_ms = None
        self.activation = None
        self._alter(options)

    def _create_notification(self, name: str, service: str | None) -> None:
        if name not in self.notifications and len(self.notifications) >= MAX_EVENT_NOTIFICATIONS:
            raise RefusedEventError(f"too many event notifications: the queue already has {MAX_EVENT_NOTIFICATIONS}")
        self.notifications[name] = service

    def _alter(self, options: QueueOptions) -> None:
        """Applies ALTER QUEUE, which changes only the settings that the options name."""
        if options.status is not None:
            self.is_on = options.status
        if options.poison_message_handling is not None:
            self.handles_poison = options.poison_message_handling
        if options.external_activation_timeout_ms is not None:
            self.external_activation_timeout_ms = options.external_activation_timeout_ms
        if options.drop_activation:
            self.activation = None
        named = options.activation
        if named is not None:
            old = self.activation or ActivationClause()
            self.activation = ActivationClause(
                is_on=old.is_on if named.status is None else named.status,
                procedure_name=named.procedure_name or old.procedure_name,
                max_queue_readers=old.max_queue_readers if named.max_queue_readers is None else named.max_queue_readers,
                execute_as=named.execute_as or old.execute_as,
            )
