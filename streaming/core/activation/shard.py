"""A shard: some of the queues, on one clock, moved batch by batch."""

from collections.abc import Iterable
from dataclasses import dataclass

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


@dataclass(slots=True, init=False)
class Step:
    """What a batch did to one queue.

    Attributes:
        queue: The queue afterwards; None if there is none.
        notifications: What is to be notified, in order.
        tasks: The tasks that were started (those not confirmed yet), or changed otherwise; None for one that has ended.
        refused: The events that a limit forbids, and why; they have changed nothing.
        writes_view: Whether its row of the monitors view is to be written; without a queue: a tombstone.
        next_check_ms: The next instant at which its check could decide otherwise without an event.
        wake_ms: When it must be stepped at the latest.
    """

    queue: Queue | None
    notifications: list[Notification]
    tasks: dict[str, Task | None]
    refused: list[tuple[Event, str]]
    writes_view: bool
    next_check_ms: int
    wake_ms: int

    # Written out, as in events.Receive.
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


def step_queue(  # noqa: PLR0913, PLR0917  (all that a step depends on, and nothing that belongs together)
    queue: Queue | None,
    batch: Iterable[Event],
    now_ms: int,
    settings: CoreSettings,
    name_task: NameTask,
    room: Room = ENDLESS,
) -> Step:
    """Takes one queue through one batch: applies its events, ends what is due, checks once.

    Args:
        queue: The queue before; None if nobody has heard of it. It is changed.
        batch: The batch's events of this queue, in order; none if it is only due.
        now_ms: The shard's time.
        settings: The settings of all queues.
        name_task: Gives a task that is started its id, by the activation's sequence.
        room: What is left of the shard's room. It is changed.
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
    return Step(queue, notifications, tasks, refused, writes_view, next_check_ms, queue.wake_ms_by(next_check_ms))


def _enter(queue: Queue | None, room: Room) -> tuple[State | None, tuple[int, ...] | None]:
    """Lets a queue take up room from now on; returns its state and its counts."""
    if queue is None:
        return None, None
    queue.enter(room)
    return queue.monitor.state, queue.counts()


def _create(event: Event, settings: CoreSettings, room: Room) -> Queue | None:
    """The queue that an event creates before it is applied; None if it creates none.

    Raises:
        RefusedEventError: It would create one, and the shard has too many.
    """
    if not isinstance(event, CREATING_EVENTS):
        return None
    limit, is_used_up = settings.max_queues_per_shard, room.is_used_up
    if isinstance(event, CREATING_COMMANDS):
        limit, is_used_up = limit * COMMANDS_QUEUES_FACTOR, room.is_used_up_for_commands
    if room.other_queues >= limit:
        raise RefusedEventError(f"too many queues: its shard has {limit}")
    if is_used_up:
        raise no_room("queues")
    is_automatic = not isinstance(event, CreateQueue)
    definition = QueueDefinition.automatic(settings.auto_create_queues) if is_automatic else QueueDefinition()
    queue = Queue(definition, settings)
    queue.enter(room)
    return queue
