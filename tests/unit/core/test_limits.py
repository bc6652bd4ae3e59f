"""Limits of the state that records can add to a queue or shard: an event beyond a limit is refused without effect."""

from dataclasses import replace

import pytest

from streaming.core.activation import snapshot
from streaming.core.activation.events import Event
from streaming.core.activation.queue import Queue
from streaming.core.activation.room import Room
from streaming.core.activation.settings import (
    MAX_EVENT_NOTIFICATIONS,
    MAX_MESSAGES,
    MAX_QUEUE_READERS,
    MAX_SESSIONS,
    MAX_TRANSACTIONS,
    CoreSettings,
)
from streaming.core.activation.shard import Step, step_queue
from tests.support.fake_spark import SETTINGS, FakeShard, activations, arrival, command, of_topic, receive
from tests.support.histories import (
    COMMIT,
    DROP_QUEUE,
    ENDED,
    LEASE,
    ROLLBACK,
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
from tests.unit.core.test_tasks import started

TEN = CoreSettings(max_queues_per_shard=10)


def step(queue: Queue | None, *events: Event, now_ms: int = 0, others: int = 0) -> Step:
    return step_queue(queue, events, now_ms, TEN, str, Room(10**9, 10**9, others))


def queue_after(*events: Event) -> Queue:
    """Returns a queue restored from its snapshot, after it has accepted all these events."""
    done = step(None, arrived(), *events)
    assert done.queue is not None
    assert done.refused == []
    return snapshot.restore(snapshot.take(done.queue), TEN)


def is_refused(queue: Queue, event: Event, reason: str) -> bool:
    """Returns whether an event is refused; checks that the refusal has this reason and changes nothing."""
    before = snapshot.take(queue)
    refused = step(queue, event, now_ms=1).refused
    if refused:
        assert refused[0][0] is event
        assert reason in refused[0][1]
        assert snapshot.take(queue) == before
    return bool(refused)


class TestQueues:
    @pytest.mark.parametrize("event", [arrived(), empty(), waiting()], ids=["arrival", "receive", "wait"])
    def test_a_full_shard_creates_none_by_itself(self, event: Event) -> None:
        full = step(None, event, others=10)
        assert full.queue is None
        assert not full.writes_view
        assert full.refused == [(event, "too many queues: the shard already has 10")]
        assert step(None, event, others=9).queue is not None

    @pytest.mark.parametrize("command_", [create_queue(), alter(), notify()], ids=["create", "alter", "notification"])
    def test_commands_create_as_many_again(self, command_: Event) -> None:
        assert step(None, command_, others=19).queue is not None
        full = step(None, command_, others=20)
        assert full.queue is None
        assert full.refused == [(command_, "too many queues: the shard already has 20")]

    def test_a_queue_that_is_there_is_not_affected(self) -> None:
        queue = queue_after(received())
        after = step(queue, arrived(2), received(1, "r", "t"), notify(), arrived(), others=1_000)
        assert after.refused == []
        assert len(after.notifications) == 1

    def test_what_comes_after_a_command_in_a_batch_is_taken(self) -> None:
        after = step(None, arrived(), create_queue(), notify(), arrived(2), others=10)
        assert after.queue is not None
        assert after.queue.unread == 2
        assert len(after.refused) == 1

    def test_a_queue_that_is_dropped_makes_room_for_itself(self) -> None:
        assert step(queue_after(), DROP_QUEUE, arrived(), others=9).refused == []

    def test_an_event_that_creates_no_queue_is_ignored_and_not_refused(self) -> None:
        assert step(None, ENDED("r"), COMMIT("r", "t"), DROP_QUEUE, others=1_000).refused == []


class TestSessions:
    def test_sessions_are_limited(self) -> None:
        queue = queue_after(*(waiting(f"s{number}") for number in range(MAX_SESSIONS)))
        assert is_refused(queue, waiting("new"), "too many sessions: 10000")
        assert is_refused(queue, received(1, "new", "t"), "too many sessions: 10000")
        assert not is_refused(queue, waiting("s1"), "")
        assert not is_refused(queue, received(1, "s2", "t"), "")
        assert not is_refused(queue, received(1, "new"), "")
        assert not is_refused(queue, empty("new"), "")
        assert not is_refused(queue, empty("s3"), "")  # ends the wait of the session
        assert not is_refused(queue, waiting("new"), "")

    def test_transactions_are_limited_over_all_sessions(self) -> None:
        queue = queue_after(*(received(1, f"s{number % 7}", f"t{number}") for number in range(MAX_TRANSACTIONS)))
        assert is_refused(queue, received(1, "s0", "new"), "too many transactions: 10000")
        assert is_refused(queue, received(1, "new", "t0"), "too many transactions: 10000")
        assert not is_refused(queue, received(1, "s0", "t0"), "")
        assert not is_refused(queue, waiting("new"), "")

    @pytest.mark.parametrize(
        "end",
        [COMMIT("s0", "t0"), ROLLBACK("s0", "t0"), ENDED("s0")],
        ids=["commit", "rollback", "end of the session"],
    )
    def test_a_transaction_that_ends_makes_room(self, end: Event) -> None:
        queue = queue_after(*(received(1, f"s{number % 7}", f"t{number}") for number in range(MAX_TRANSACTIONS)))
        assert not is_refused(queue, COMMIT("s0", "unknown"), "")
        assert is_refused(queue, received(1, "s1", "new"), "too many transactions")
        assert not is_refused(queue, end, "")
        assert not is_refused(queue, received(1, "s1", "new"), "")

    def test_the_end_of_a_lease_makes_room(self) -> None:
        queue = queue_after(*(received(1, "s", f"t{number}") for number in range(MAX_TRANSACTIONS)))
        step(queue, now_ms=LEASE)
        assert queue.sessions.open_transactions == 0


class TestOthers:
    def test_event_notifications_are_limited(self) -> None:
        queue = queue_after(drop_notification("default"), *(notify(f"n{n}") for n in range(MAX_EVENT_NOTIFICATIONS)))
        assert is_refused(queue, notify("new"), "too many event notifications: the queue already has 100")
        assert not is_refused(queue, notify("n1", "another service"), "")
        assert not is_refused(queue, drop_notification("n2"), "")
        assert not is_refused(queue, notify("new"), "")

    def test_tasks_are_limited(self) -> None:
        clause = activation(procedure_name="p", max_queue_readers=0)
        queue = queue_after(alter(activation=clause), *(started(f"k{n}") for n in range(MAX_QUEUE_READERS)))
        assert is_refused(queue, started("new"), "too many tasks: 32767")
        assert not is_refused(queue, started("k1"), "")

    def test_counts_stop_far_below_what_64_bits_hold(self) -> None:
        most = 10**9
        queue = queue_after(*(arrived(most) for _ in range(1_100)))
        assert queue.unread == MAX_MESSAGES
        step(queue, *(received(most, "s", "t") for _ in range(2_200)))
        assert queue.unread == -MAX_MESSAGES
        assert queue.sessions.by_id["s"].transactions == {"t": MAX_MESSAGES}
        step(queue, now_ms=LEASE)
        step(queue, *(received(most, "s", "t") for _ in range(1_100)), now_ms=LEASE)
        step(queue, now_ms=2 * LEASE)
        assert queue.sessions.marks.by_key["s", "t"].messages == MAX_MESSAGES
        assert abs(queue.unread) <= MAX_MESSAGES


class TestShard:
    SETTINGS = replace(SETTINGS, core=CoreSettings(max_queues_per_shard=2), logs_batches=True)

    def test_each_refused_record_is_a_dead_letter(self) -> None:
        shard = FakeShard(self.SETTINGS)
        shard.batch(0, arrival("a"), arrival("b"))
        before = shard.state.value
        outputs = shard.batch(
            0, arrival("c"), arrival("c", count=2), arrival("c", count=0), receive("EMPTY", "c"), arrival("c", count=3)
        )
        letters = of_topic(outputs, "queue-dead-letters")
        assert {int(letter.headers["source_offset"]): letter.headers["reason"].decode()[:15] for letter in letters} == {
            2: "too many queues",
            3: "too many queues",
            4: "Expected `int` ",
            5: "too many queues",
            6: "too many queues",
        }
        assert len(letters) == 5
        assert activations(outputs) == []
        assert shard.state.value == before

    def test_long_names_count_for_several_queues(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("streaming.core.activation.room.MIN_ROOM_BYTES", 0)
        shard = FakeShard(replace(SETTINGS, core=CoreSettings(max_queues_per_shard=6)))
        long = ".".join(["\U0010ffff" * 128] * 3)
        assert of_topic(shard.batch(0, arrival(long)), "queue-dead-letters") == []
        for _ in range(2):  # first within a batch, then with the state of that batch
            outputs = shard.batch(0, arrival("a"), arrival(long[1:]), arrival("b"))
        letters = of_topic(outputs, "queue-dead-letters")
        assert [letter.key for letter in letters] == [b"b"]
        assert shard.batch(0, arrival(long), arrival("a"), command("CREATE_QUEUE", "c")) != []
        assert len(of_topic(shard.batch(0, arrival("d"), arrival(long)), "queue-dead-letters")) == 1

    def test_the_log_of_batches_has_what_was_taken(self) -> None:
        shard = FakeShard(self.SETTINGS)
        outputs = shard.batch(
            0, *(arrival(queue, count=7) for queue in "abc"), command("CREATE_QUEUE", "c"), arrival("c")
        )
        logged = {one.json["queue"]: len(one.json["events"]) for one in of_topic(outputs, "queue-batches")}
        assert logged == {"a": 1, "b": 1, "c": 2}
        assert [one.json["count"] for one in of_topic(outputs, "queue-dead-letters")] == [7]
