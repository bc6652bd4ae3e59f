"""One shard of a few queues under random senders, readers, task hosts and commands, checked after every step.

Readers come and go, work in transactions, crash with and without a report, and commit late. Tasks exit, crash, fail to
start, or are lost with their host. Queues are set OFF, altered and dropped. Some pauses between batches are long, and
the wall clock jumps. No reader reports `unread`, so there is no healing. An oracle that only adds and subtracts must
agree with every count. A failure names its seed and the command that replays it.
"""

from collections.abc import Callable
from random import Random

import pytest

from streaming.core.activation import events
from streaming.core.activation.events import Event, Receive
from streaming.core.activation.notification import EventType
from streaming.core.activation.queue import Queue
from streaming.core.activation.queue_monitor import State
from streaming.core.activation.settings import CoreSettings, Semantics
from streaming.core.activation.shard import Step, step_queue
from streaming.core.times import Clock
from tests.support.histories import (
    ALIVE,
    COMMIT,
    DROP_QUEUE,
    ENDED,
    MINUTE,
    ROLLBACK,
    SECOND,
    T,
    activation,
    alter,
    arrived,
    create_queue,
    drop_notification,
    empty,
    notify,
    received,
    waiting,
)
from tests.support.oracle import Oracle
from tests.support.seeds import seeds

STEPS = 10_000
FIXED_SEEDS = (1, 2, 3, 4, 5)

CLAUSE = activation(procedure_name="p", max_queue_readers=2)
# One queue for each way of activation, and one for both.
CREATIONS = (
    [create_queue(), notify()],
    [create_queue(activation=CLAUSE)],
    [create_queue(activation=CLAUSE), notify()],
)


class Simulation:
    """The shard, its queues and their users."""

    def __init__(self, seed: int, settings: CoreSettings) -> None:
        self.random = Random(seed)  # noqa: S311  (no secret)
        self.settings = settings
        self.clock = Clock(0, 0)
        self.queues: list[Queue | None] = [None for _ in CREATIONS]
        self.oracles = [Oracle(settings) for _ in CREATIONS]
        self.activations = self.tasks = self.retries = self.failures = 0
        self.ids = 0
        self.are_readers_there = True

    def step(self) -> None:
        """Runs one batch: time passes, some queues get events, and queues that are due are checked."""
        random = self.random
        pause_ms = random.choices((100, 1_000, 6_000, 30_000, 20 * MINUTE), (50, 20, 5, 2, 0.2))[0]
        if random.random() < 0.005:
            pause_ms = random.choice((-MINUTE, -1, 90 * SECOND))  # the wall clock jumps
        self.clock.advance(self.clock.batch_ms + pause_ms)
        if random.random() < 0.02:
            self.are_readers_there = not self.are_readers_there  # without them procedures fail
        for number in range(len(CREATIONS)):
            queue = self.queues[number]
            is_used = random.random() < 0.4
            if is_used or (queue is not None and queue.next_wake_ms(queue.next_check_ms()) <= self.clock.now_ms):
                self.step_queue(number, random.randint(1, 3) if is_used else 0)

    def step_queue(self, number: int, count: int) -> None:
        now_ms, queue, oracle = self.clock.now_ms, self.queues[number], self.oracles[number]
        if queue is None:
            queue = step_queue(None, CREATIONS[number], now_ms, self.settings, self.name_task).queue
            assert queue is not None
        was_failed = queue.tasks.is_procedure_failed
        for _ in range(count):
            event = self.event(queue, oracle)
            if event is DROP_QUEUE:
                assert step_queue(queue, [event], now_ms, self.settings, self.name_task).queue is None
                self.queues[number], self.oracles[number] = None, Oracle(self.settings)
                return
            self.apply(event, queue, oracle)
        was_notified = queue.monitor.state is State.NOTIFIED
        step = step_queue(queue, [], now_ms, self.settings, self.name_task)
        self.queues[number] = queue = step.queue
        assert queue is not None
        self.failures += queue.tasks.is_procedure_failed and not was_failed
        self.hear_step(step, queue, oracle, was_notified)
        oracle.check(queue, now_ms)

    def apply(self, event: Event, queue: Queue, oracle: Oracle) -> None:
        """Applies one event to the queue and to the oracle, and tells the oracle about changes of the monitor."""
        now_ms = self.clock.now_ms
        had_monitor, was_on = queue.monitor.state is not State.ABSENT, queue.definition.is_activation_on
        is_waiting = isinstance(event, Receive) and queue.sessions.is_waiting(event.session_id, now_ms)
        procedure, is_notified = queue.definition.procedure_name, queue.monitor.state is State.NOTIFIED
        queue.apply(event, now_ms)
        oracle.hear(event, is_waiting, is_notified, now_ms)
        if queue.definition.procedure_name != procedure:
            oracle.may_retry, oracle.failures = True, 0
        if not had_monitor or (queue.definition.is_activation_on and not was_on):
            oracle.monitor_is_new()
        if queue.monitor.state is State.ABSENT:
            oracle.tasks_work()
        if queue.unread <= 0:
            oracle.was_empty, oracle.began_ms = True, None
        if queue.definition.external_activation_timeout_ms is not None:
            oracle.timeout_ms = queue.definition.external_activation_timeout_ms

    def hear_step(self, step: Step, queue: Queue, oracle: Oracle, was_notified: bool) -> None:
        """Tells the oracle the results of the check at the end of the batch."""
        now_ms = self.clock.now_ms
        oracle.look_at_the_clock(now_ms)
        started = [task_id for task_id, task in step.tasks.items() if task is not None and not task.is_confirmed]
        oracle.lose(queue, was_notified, now_ms)
        for notification in step.notifications:
            if notification.event_type is EventType.QUEUE_ACTIVATION:
                oracle.activated(notification.sequence, now_ms)
            else:
                oracle.sequence += 1
                assert notification.sequence == oracle.sequence, "the sequence has no gaps"
        is_activated = any(one.event_type is EventType.QUEUE_ACTIVATION for one in step.notifications)
        if queue.sequence != oracle.sequence:
            oracle.activated(queue.sequence, now_ms)  # no event notification
            is_activated = True
        for task_id in started:
            is_retry = not is_activated
            oracle.task_started(queue, task_id, is_retry, now_ms)
            self.tasks += 1
            self.retries += is_retry
        self.activations += is_activated

    def event(self, queue: Queue, oracle: Oracle) -> Event:
        """Returns the next event, such as a real sender, reader, task host or administrator could cause."""
        session = self.random.choice("rst")
        presence = 1 if self.are_readers_there else 0.01
        kinds: dict[tuple[float, str], Callable[[], Event]] = {
            (6, "a message arrives"): lambda: arrived(self.random.choice((1, 1, 1, 20))),
            (8 * presence, "a reader reads"): lambda: self.receive(session, queue, oracle),
            (2 * presence, "a reader waits"): lambda: waiting(
                session, where=self.random.random() < 0.3, timeout_ms=self.random.choice((None, 3 * SECOND))
            ),
            (4, "a transaction ends"): lambda: self.end_transaction(queue, oracle),
            (2, "a reader is alive"): lambda: ALIVE(session),
            (1, "a reader is gone"): lambda: ENDED(session),
            (4 if oracle.tasks else 0.2, "a host tells of a task"): lambda: self.tell_of_task(oracle),
            (0.4, "a command is given"): lambda: self.command(queue),
        }
        return self.random.choices(list(kinds.values()), [weight for weight, _ in kinds])[0]()

    def receive(self, session: str, queue: Queue, oracle: Oracle) -> Event:
        where = self.random.random() < 0.2
        if queue.unread <= 0 or self.random.random() < 0.2:
            return empty(session, where=where)
        messages = self.random.randint(1, queue.unread)
        return received(messages, session, self.transaction(session, oracle), where=where)

    def end_transaction(self, queue: Queue, oracle: Oracle) -> Event:
        if not oracle.open:
            return ALIVE("r")
        session, transaction = self.random.choice(list(oracle.open))
        known = queue.sessions.by_id.get(session)
        still_open = known.transactions.get(transaction, 0) if known is not None else 0
        # The simulation sends no late COMMIT for messages that another reader has received since.
        may_commit = queue.unread >= oracle.open[session, transaction] - still_open
        return (COMMIT if may_commit and self.random.random() < 0.7 else ROLLBACK)(session, transaction)

    def transaction(self, session: str, oracle: Oracle) -> str | None:
        """Returns None, an open transaction of the session, or a new transaction id."""
        self.ids += 1
        opened = [transaction for owner, transaction in oracle.open if owner == session]
        return self.random.choice([None, f"t{self.ids}", *opened[:1]])

    def tell_of_task(self, oracle: Oracle) -> Event:
        """Returns a report about a running task, mostly that it runs, or the exit of a task that is not known."""
        if not oracle.tasks:
            return events.TaskExited(f"k{self.ids}", 0)
        task_id = self.random.choice(list(oracle.tasks))
        kinds: list[Event] = [
            events.TaskStarted(task_id, "host"),
            events.TaskExited(task_id, self.random.choice((0, 0, 1, -9)), interrupted=self.random.random() < 0.2),
            events.TaskFailedToStart(task_id, interrupted=self.random.random() < 0.2),
        ]
        return self.random.choices(kinds, (6, 3, 1))[0]

    def name_task(self, _sequence: int) -> str:
        self.ids += 1
        return f"k{self.ids}"

    def command(self, queue: Queue) -> Event:
        if not queue.definition.is_on or not queue.definition.is_monitored:
            return self.random.choice((alter(status=True), notify()))
        commands = [
            alter(status=False),
            alter(status=True),
            alter(external_activation_timeout_ms=self.random.choice((SECOND, T, 2 * MINUTE))),
            alter(activation=activation(status=True)),
            alter(activation=activation(status=False)),
            alter(activation=activation(procedure_name=self.random.choice("pq"))),
            alter(activation=activation(max_queue_readers=self.random.randint(0, 4))),
            notify("m"),
            drop_notification(),
            drop_notification("m"),
            DROP_QUEUE,
        ]
        return self.random.choice(commands)


@pytest.mark.parametrize("semantics", Semantics)
@pytest.mark.parametrize("seed", seeds("SIMULATION_SEED", FIXED_SEEDS))
def test_invariants_hold_after_every_step(seed: int, semantics: Semantics) -> None:
    print(f"SIMULATION_SEED={seed} pytest {__file__} -k {semantics}")  # noqa: T201  (shown if the test fails)
    simulation = Simulation(seed, CoreSettings(semantics=semantics))
    for _ in range(STEPS):
        simulation.step()
    done = (simulation.activations, simulation.tasks, simulation.retries, simulation.failures)
    assert all(count > STEPS // 1_000 for count in done), f"the simulation did too little: {done}"
