"""The room of a shard: once it is used up, events that would add to the state are refused, and others applied."""

from random import Random

import msgspec
import pytest

from streaming.core.activation import events, snapshot
from streaming.core.activation.events import Event
from streaming.core.activation.queue import Queue
from streaming.core.activation.queue_monitor import State
from streaming.core.activation.room import MAX_GROWTH_BYTES, Room, number_bytes, room_of, text_bytes
from streaming.core.activation.settings import MAX_MARKS, QUEUE_BYTES, TASK_RETRY_MS, CoreSettings
from streaming.core.activation.shard import Step, step_queue
from tests.support.histories import (
    ALIVE,
    COMMIT,
    DROP_QUEUE,
    ENDED,
    LEASE,
    LITERAL,
    ROLLBACK,
    SECOND,
    T,
    W,
    activation,
    alter,
    arrived,
    create_queue,
    drop_notification,
    empty,
    notify,
    random_event,
    received,
    waiting,
)
from tests.unit.core.test_tasks import started

SETTINGS = CoreSettings()
# A batch could use up this room, so it is counted.
PLENTY = 10**6
LONGEST = "\U0010ffff" * 256


def full_for_events() -> Room:
    return Room(0, PLENTY)


def full() -> Room:
    return Room(-PLENTY, PLENTY)


def step(queue: Queue | None, room: Room, *batch: Event, now_ms: int = 0, settings: CoreSettings = SETTINGS) -> Step:
    return step_queue(queue, batch, now_ms, settings, str, room)


def queue_after(*batch: Event, settings: CoreSettings = SETTINGS) -> Queue:
    """Returns a queue that has accepted all these events."""
    done = step(None, Room(PLENTY), *batch, settings=settings)
    assert done.queue is not None
    assert done.refused == []
    return done.queue


def size_bytes(queue: Queue) -> int:
    return len(msgspec.msgpack.encode(snapshot.take(queue)))


def refusals(queue: Queue, room: Room, *batch: Event) -> list[tuple[Event, str]]:
    """Returns the refused events with their reasons. If all are refused, checks that nothing has changed."""
    before = snapshot.take(queue)
    refused = step(queue, room, *batch).refused
    if len(refused) == len(batch):
        assert snapshot.take(queue) == before
    return [(event, reason.split(":")[0]) for event, reason in refused]


class TestWhatEventsTakeUp:
    @pytest.mark.parametrize(
        ("event", "reason"),
        [
            (waiting("new"), "too many sessions"),
            (waiting("known"), "too many sessions"),
            (received(1, "new", "t"), "too many transactions"),
            (received(1, "known", "new"), "too many transactions"),
            (received(1, "waits", "new"), "too many transactions"),
            (received(127, "known", "t"), "too many transactions"),
            (started("new"), "too many tasks"),
        ],
        ids=str,
    )
    def test_is_refused_once_the_room_is_used_up(self, event: Event, reason: str) -> None:
        clause = activation(procedure_name="p", max_queue_readers=3)
        history = (arrived(9), alter(activation=clause), received(1, "known", "t"), waiting("waits"))
        assert refusals(queue_after(*history), full_for_events(), event) == [(event, reason)]
        assert refusals(queue_after(*history), Room(1), event) == []

    def test_each_event_counts_for_the_next(self) -> None:
        room = Room(MAX_GROWTH_BYTES)
        sessions = [received(1, f"{number}{LONGEST[1:]}", LONGEST) for number in range(5)]
        assert [event for event, _ in refusals(queue_after(arrived(9)), room, *sessions)] == sessions[2:]

    @pytest.mark.parametrize(
        "event",
        [
            arrived(),
            received(),
            received(1, "known", "t"),
            received(1, "new", unread=3),
            empty("new"),
            empty("waits"),
            waiting("waits", timeout_ms=5),
            COMMIT("known", "t"),
            ROLLBACK("known", "t"),
            COMMIT("new", "t"),
            ALIVE("known"),
            ENDED("known"),
            started("task", "h"),
            events.TaskExited("task", 0),
            events.TaskFailedToStart("task"),
            create_queue(),
            alter(activation=activation(status=True, procedure_name="p")),
            alter(status=False),
            notify("n", "s"),
            drop_notification("n"),
        ],
        ids=str,
    )
    def test_what_takes_nothing_goes_on_in_a_full_shard(self, event: Event) -> None:
        clause = activation(procedure_name="p", max_queue_readers=3)
        history = (arrived(9), alter(activation=clause), notify("n", "s"), received(1, "known", "t"), waiting("waits"))
        queue = queue_after(*history, started("task", "h"))
        assert refusals(queue, full(), event) == []

    def test_a_queue_that_is_off_knows_no_waits_and_needs_no_room(self) -> None:
        assert refusals(queue_after(arrived(), alter(status=False)), full(), waiting("new")) == []

    @pytest.mark.parametrize("end", [COMMIT("r", "t"), ROLLBACK("r", "t"), ENDED("r")], ids=str)
    def test_what_ends_makes_room_within_the_batch(self, end: Event) -> None:
        queue = queue_after(arrived(9), received(1, "r", "t"))
        assert refusals(queue, Room(0), waiting("new"), end, waiting("s")) == [(waiting("new"), "too many sessions")]

    def test_a_known_task_lives_on_but_its_host_is_only_remembered_while_there_is_room(self) -> None:
        clause = activation(procedure_name="p", max_queue_readers=1)
        queue = queue_after(create_queue(activation=clause), arrived())
        [task_id] = queue.tasks.running
        room = Room(0, PLENTY)
        step(queue, room, started(task_id, "host"), now_ms=LEASE - 1)
        task = queue.tasks.running[task_id]
        assert (task.is_confirmed, task.host, task.lease.from_ms) == (True, None, LEASE - 1)
        step(queue, Room(1), started(task_id, "host"), now_ms=LEASE)
        assert task.host == "host"
        step(queue, room, started(task_id, "another"), now_ms=LEASE)
        assert task.host == "host"
        step(queue, room, started(task_id, "h"), now_ms=LEASE)
        assert task.host == "h"


class TestWhatCommandsTakeUp:
    LONGER = (
        notify("new"),
        notify("n", "longer service"),
        alter(activation=activation(procedure_name="longer procedure")),
        alter(activation=activation(execute_as="somebody")),
        create_queue(activation=activation(procedure_name="longer procedure")),
    )

    @pytest.mark.parametrize("event", LONGER, ids=str)
    def test_is_refused_once_the_room_for_commands_is_used_up(self, event: Event) -> None:
        history = (create_queue(activation=activation(procedure_name="p")), notify("n", "s"))
        assert refusals(queue_after(*history), full(), event) == [(event, "too many definitions")]
        assert refusals(queue_after(*history), full_for_events(), event) == []

    def test_each_command_counts_for_the_next(self) -> None:
        commands = [notify(f"{number}{LONGEST[1:128]}", LONGEST) for number in range(5)]
        refused = refusals(queue_after(create_queue()), Room(2_000), *commands)
        assert [event for event, _ in refused] == commands[2:]

    def test_a_queue_that_is_dropped_makes_room_in_the_same_batch(self) -> None:
        queue = queue_after(create_queue(), *(notify(f"{number}{LONGEST}"[:128]) for number in range(9)))
        room = Room(-1, own_bytes=size_bytes(queue))
        done = step(queue, room, notify("more"), DROP_QUEUE, create_queue(), notify("other"))
        assert [event for event, _ in done.refused] == [notify("more")]
        assert done.queue is not None
        assert list(done.queue.definition.notifications) == ["other"]


class TestMarks:
    @staticmethod
    def silent(count: int) -> Queue:
        """Returns a queue of one session with a long name and many small transactions."""
        return queue_after(arrived(count), *(received(1, LONGEST, f"t{number}") for number in range(count)))

    def test_they_are_made_while_there_is_room(self) -> None:
        queue, room = self.silent(100), Room(10 * len(LONGEST.encode()))
        step(queue, room, now_ms=LEASE)
        assert 5 < len(queue.sessions.marks.by_key) < 15
        # The rest of the room is what the session itself gave back in the end.
        assert -MAX_GROWTH_BYTES < room.left_bytes < MAX_GROWTH_BYTES
        assert queue.unread == 100

    def test_the_newest_are_kept_and_the_others_take_no_room(self) -> None:
        queue, room = self.silent(MAX_MARKS + 50), Room(3 * 10**6)
        step(queue, room, now_ms=LEASE)
        marks = [transaction_id for _, transaction_id in queue.sessions.marks.by_key]
        assert marks == [f"t{number}" for number in range(50, MAX_MARKS + 50)]
        assert 3 * 10**6 - room.left_bytes < 1_100 * MAX_MARKS

    def test_without_a_mark_a_late_commit_takes_nothing_off(self) -> None:
        queue = self.silent(2)
        step(queue, full(), now_ms=LEASE)
        step(queue, full(), COMMIT(LONGEST, "t0"), now_ms=LEASE)
        assert (queue.unread, queue.sessions.marks.by_key) == (2, {})


class TestTasks:
    CLAUSE = activation(procedure_name="p", max_queue_readers=3)

    def test_without_room_none_is_started_and_the_event_notification_is_notified(self) -> None:
        queue = queue_after(create_queue(activation=self.CLAUSE), notify())
        done = step(queue, full(), arrived())
        assert (len(done.notifications), done.tasks, queue.tasks.limit_reached) == (1, {}, 1)
        # The activation is unanswered until a reader receives, so a task is started as soon as there is room.
        assert done.wake_ms == TASK_RETRY_MS
        done = step(queue, full(), now_ms=TASK_RETRY_MS)
        assert (done.tasks, done.wake_ms) == ({}, 2 * TASK_RETRY_MS)
        done = step(queue, full_for_events(), now_ms=2 * TASK_RETRY_MS)
        assert list(done.tasks) == ["1"]

    @pytest.mark.parametrize("settings", [SETTINGS, LITERAL], ids=["observed", "literal"])
    def test_without_an_event_notification_the_monitor_looks_again(self, settings: CoreSettings) -> None:
        queue = queue_after(create_queue(activation=self.CLAUSE), settings=settings)
        done = step(queue, full(), arrived(), settings=settings)
        assert (done.tasks, queue.tasks.limit_reached, queue.monitor.state) == ({}, 1, State.RECEIVES_OCCURRING)
        assert done.next_check_ms == TASK_RETRY_MS
        # An event in between does not change that.
        done = step(queue, full(), empty(where=True), now_ms=W - 1, settings=settings)
        now_ms = done.next_check_ms
        assert W <= now_ms <= W - 1 + TASK_RETRY_MS
        done = step(queue, full_for_events(), now_ms=now_ms, settings=settings)
        assert list(done.tasks) == ["1"]
        assert queue.monitor.state is State.NOTIFIED

    def test_a_task_that_was_killed_is_started_again_when_there_is_room(self) -> None:
        queue = queue_after(create_queue(activation=self.CLAUSE), arrived())
        step(queue, full(), events.TaskExited("1", -9))
        assert step(queue, full(), now_ms=TASK_RETRY_MS).tasks == {}
        assert list(step(queue, full_for_events(), now_ms=2 * TASK_RETRY_MS).tasks) == ["1"]

    def test_a_failed_procedure_is_not_counted(self) -> None:
        queue = queue_after(create_queue(activation=self.CLAUSE), arrived())
        step(queue, full(), events.TaskExited("1", 0))
        assert queue.tasks.is_procedure_failed
        step(queue, full(), arrived(), now_ms=T)
        assert queue.tasks.limit_reached == 0


class TestCounting:
    @pytest.mark.parametrize("length", [0, 1, 31, 32, 128, 255, 256])
    @pytest.mark.parametrize("character", ["a", "ä", "\U0010ffff"])
    def test_a_text(self, length: int, character: str) -> None:
        text = character * length
        assert 0 <= text_bytes(text) - len(msgspec.msgpack.encode(text)) <= 2
        assert text_bytes(None) == len(msgspec.msgpack.encode(None))

    @pytest.mark.parametrize("limit", [0, 2**7, 2**8, 2**16, 2**32, 10**12])
    def test_a_number(self, limit: int) -> None:
        for number in (max(0, limit - 1), limit):
            assert number_bytes(number) == len(msgspec.msgpack.encode(number))

    @pytest.mark.parametrize("seed", range(20))
    def test_no_state_grows_without_being_counted_and_what_ends_gives_back_all(self, seed: int) -> None:
        random = Random(seed)  # noqa: S311  (no secret)
        room, now_ms = Room(PLENTY), 0
        queue = step(None, room, create_queue()).queue
        assert queue is not None
        fixed_bytes = size_bytes(queue) + 64  # the growth of counts is not counted
        for _ in range(300):
            event = random_event(random)
            if event is DROP_QUEUE:
                continue
            now_ms += random.choice((0, 0, SECOND, LEASE))
            queue = step(queue, room, event, now_ms=now_ms).queue
            assert queue is not None
            assert size_bytes(queue) <= fixed_bytes + PLENTY - room.left_bytes
        now_ms += 3 * 24 * 3_600 * SECOND
        for _ in range(2):  # leases that are found overdue are extended once
            now_ms += LEASE
            step(queue, room, create_queue(), *map(drop_notification, queue.definition.notifications), now_ms=now_ms)
        step(queue, room, now_ms=now_ms + 2 * 24 * 3_600 * SECOND)
        assert (queue.sessions.by_id, queue.sessions.marks.by_key, queue.tasks.running) == ({}, {}, {})
        assert room.left_bytes == PLENTY

    def test_the_room_of_a_shard(self) -> None:
        room = room_of(CoreSettings(max_queues_per_shard=100_000), 80_000 * QUEUE_BYTES, 3, 0, 0)
        assert (room.left_bytes, room.commands_bytes) == (20_000 * QUEUE_BYTES, 50_000 * QUEUE_BYTES)
        assert room.other_queues == 3

    def test_a_small_limit_of_queues_leaves_room_for_many_readers(self) -> None:
        room = room_of(CoreSettings(max_queues_per_shard=1), 0, 0, 0, 10_000)
        readers = [received(1, f"{number:036}", f"{number:036}") for number in range(10_000)]
        assert step(None, room, arrived(), *readers, settings=CoreSettings(max_queues_per_shard=1)).refused == []

    def test_it_is_counted_only_where_a_batch_could_use_it_up(self) -> None:
        most = (MAX_MARKS + 1 + 7) * MAX_GROWTH_BYTES
        assert Room(most, events=7).is_counted
        uncounted = Room(most + 1, events=7)
        assert not uncounted.is_counted
        uncounted.take(5)
        uncounted.drop_queue()
        assert uncounted.left_bytes == most + 1

    @pytest.mark.parametrize("is_counted", [True, False], ids=["counted", "not counted"])
    def test_counting_decides_nothing_as_long_as_there_is_room(self, is_counted: bool) -> None:
        random = Random(5)  # noqa: S311  (no secret)
        batches = [[random_event(random) for _ in range(5)] for _ in range(100)]
        found, expected = None, None
        for number, batch in enumerate(batches):
            now_ms = number * 20 * SECOND
            found = step(found, Room(PLENTY if is_counted else 10**9), *batch, now_ms=now_ms).queue
            expected = step_queue(expected, batch, now_ms, SETTINGS, str).queue
            assert (found and snapshot.take(found)) == (expected and snapshot.take(expected))


def test_no_event_and_no_task_adds_more_than_max_growth_bytes() -> None:
    clause = activation(procedure_name="\U0010ffff" * 386, execute_as=LONGEST, max_queue_readers=9)
    longest = [received(10**9, LONGEST, LONGEST[1:]), waiting(LONGEST), alter(activation=clause)]
    longest += [notify(LONGEST[:128], LONGEST), arrived(10**9), events.TaskStarted(LONGEST, LONGEST)]
    for event in longest:
        queue = queue_after(alter(activation=activation(max_queue_readers=0)))
        before = size_bytes(queue)
        assert step(queue, Room(PLENTY), event, now_ms=10**14).refused == []
        assert size_bytes(queue) - before < MAX_GROWTH_BYTES
    without, queue = (queue_after(create_queue(activation=clause), *batch) for batch in ([], [arrived()]))
    assert len(queue.tasks.running) == 1
    assert size_bytes(queue) - size_bytes(without) < MAX_GROWTH_BYTES
