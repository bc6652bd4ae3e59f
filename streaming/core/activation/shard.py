"""Takes the queues of a shard through their batches. The queues of a shard share one clock."""

from collections.abc import Iterable

from streaming.core.activation.definition import QueueDefinition
from streaming.core.activation.events import (
    CREATING_COMMANDS,
    CREATING_EVENTS,
    CreateQueue,
    DropQueue,
    Event,
    RefusedEventError,
)
from streaming.core.activation.notification import Notification
from streaming.core.activation.queue import Queue
from streaming.core.activation.queue_monitor import State
from streaming.core.activation.room import ENDLESS, Room, no_room
from streaming.core.activation.settings import COMMANDS_QUEUES_FACTOR, CoreSettings
from streaming.core.activation.tasks import NameTask, Task
from streaming.core.times import FOREVER_MS


class Step:
    """The result of one batch for one queue.

    Attributes:
        queue: The queue after the batch; None if it does not exist.
        notifications: The notifications to write, in order.
        tasks: task_id -> a task that was started (still unconfirmed) or changed, or None for a task that has ended.
        refused: The events that a limit forbids, with the reasons. These events have changed nothing.
        writes_view: Whether to write the queue's row of the monitors view, or a tombstone if `queue` is None.
        next_check_ms: The next instant at which a check could decide differently without an event.
        wake_ms: The instant by which the next step must come.
    """

    def __init__(  # noqa: PLR0913, PLR0917  (a value for each attribute)
        self,
        queue: Queue | None,
        notifications: list[Notification],
        tasks: dict[str, Task | None],
        refused: list[tuple[Event, str]],
        writes_view: bool,
        next_check_ms: int = FOREVER_MS,
        wake_ms: int = FOREVER_MS,
    ) -> None:
        self.queue = queue
        self.notifications = notifications
        self.tasks = tasks
        self.refused = refused
        self.writes_view = writes_view
        self.next_check_ms = next_check_ms
        self.wake_ms = wake_ms


def step_queue(  # noqa: PLR0913, PLR0917  (everything that a step depends on)
    queue: Queue | None,
    batch: Iterable[Event],
    now_ms: int,
    settings: CoreSettings,
    name_task: NameTask,
    room: Room = ENDLESS,
) -> Step:
    """Takes a queue through a batch: applies the events, ends waits, transactions and tasks that are due, checks once.

    Args:
        queue: The queue before the batch, changed in place; None if it does not exist.
        batch: The queue's events in the batch, in order; empty if the queue is only due.
        now_ms: The shard's time.
        settings: The settings of all queues.
        name_task: Returns the id of a new task, given the activation's sequence.
        room: The remaining room of the shard, changed in place.
    """
    existed = queue is not None
    state, counts = _enter(queue, room)
    notifications: list[Notification] = []
    tasks: dict[str, Task | None] = {}
    refused: list[tuple[Event, str]] = []
    for event in batch:
        if isinstance(event, DropQueue):
            if queue is not None:
                notifications += queue.take_notifications()
                tasks |= queue.tasks.take_changes() | dict.fromkeys(queue.tasks.running)
                room.drop_queue()
            queue = None
            continue
        try:
            if queue is None:
                queue = _create(event, settings, room)
            if queue is not None:
                queue.apply(event, now_ms)
        except RefusedEventError as refusal:
            refused.append((event, str(refusal)))
    if queue is not None:
        queue.end_due(now_ms)
        queue.check(now_ms, name_task)
        notifications += queue.take_notifications()
        tasks |= queue.tasks.take_changes()
        if queue.is_idle_expired(now_ms):
            queue = None
    if queue is None:
        return Step(None, notifications, tasks, refused, writes_view=existed)
    writes_view = queue.take_view_due(queue.monitor.state is not state, queue.counts() != counts, now_ms)
    next_check_ms = queue.next_check_ms()
    return Step(queue, notifications, tasks, refused, writes_view, next_check_ms, queue.next_wake_ms(next_check_ms))


def _enter(queue: Queue | None, room: Room) -> tuple[State | None, tuple[int, ...] | None]:
    """Makes a queue use this room from now on. Returns the queue's state and counts."""
    if queue is None:
        return None, None
    queue.enter(room)
    return queue.monitor.state, queue.counts()


def _create(event: Event, settings: CoreSettings, room: Room) -> Queue | None:
    """Returns a new queue for an event that creates a queue, before the event is applied; None for all other events.

    Raises:
        RefusedEventError: The shard has too many queues, or its room is used up.
    """
    if not isinstance(event, CREATING_EVENTS):
        return None
    limit, is_used_up = settings.max_queues_per_shard, room.is_used_up
    if isinstance(event, CREATING_COMMANDS):
        limit, is_used_up = limit * COMMANDS_QUEUES_FACTOR, room.is_used_up_for_commands
    if room.other_queues >= limit:
        raise RefusedEventError(f"too many queues: the shard already has {limit}")
    if is_used_up:
        raise no_room("queues")
    is_automatic = not isinstance(event, CreateQueue)
    definition = QueueDefinition.automatic(settings.auto_create_queues) if is_automatic else QueueDefinition()
    queue = Queue(definition, settings)
    queue.enter(room)
    return queue
