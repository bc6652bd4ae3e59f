"""A shard whose room many queues have used up, each within its own limits: it stops growing, and goes on working."""

from dataclasses import replace

import pytest

from streaming.core.activation.room import MAX_GROWTH_BYTES
from streaming.core.activation.settings import QUEUE_BYTES, CoreSettings
from streaming.spark.activation.shard_state import ShardState
from streaming.spark.activation.sources import Source
from tests.support.fake_spark import (
    SETTINGS,
    FakeShard,
    Output,
    Record,
    activations,
    arrival,
    command,
    of_topic,
    record,
)
from tests.support.histories import LEASE, SECOND, W

CORE = CoreSettings(max_queues_per_shard=100)
ROOM_BYTES = 100 * QUEUE_BYTES
# The most by which state may exceed the room: the growth by one event, and by counts, which are not refused.
SLACK_BYTES = MAX_GROWTH_BYTES + 2_048
QUEUES = [f"queue-{number}" for number in range(20)]
LONGEST = "\U0010ffff" * 256


@pytest.fixture(autouse=True)
def small_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.core.activation.room.MIN_ROOM_BYTES", 0)


def full_shard() -> FakeShard:
    return FakeShard(replace(SETTINGS, core=CORE))


def size_bytes(shard: FakeShard) -> int:
    return ShardState.of_row(shard.state.get).size_bytes


def of_session(kind: str, queue: str, session_id: str, **more: object) -> Record:
    return record(Source.RECEIVES, {"type": kind, "queue": queue, "session_id": session_id} | more)


def taken(queue: str, session_id: str, transaction_id: str) -> Record:
    more = {"result": "MESSAGES", "messages": 1, "transaction_id": transaction_id}
    return of_session("RECEIVE", queue, session_id, **more)


def silent(queue: str) -> list[Record]:
    return [taken(queue, f"s{number}", f"{number}{LONGEST}"[:256]) for number in range(30)]


def reasons(outputs: list[Output]) -> set[str]:
    letters = of_topic(outputs, "queue-dead-letters")
    return {letter.headers["reason"].decode().split(":")[0] for letter in letters}


def filled() -> FakeShard:
    """Returns a shard whose room is used up by silent transactions. The queue `good` existed before them."""
    shard = full_shard()
    shard.batch(0, arrival("good"), taken("good", "reader", "t"))
    outputs = shard.batch(SECOND, *(one for queue in QUEUES for one in [arrival(queue), *silent(queue)]))
    assert "too many transactions" in reasons(outputs)
    return shard


def test_transactions_of_many_queues_stop_growing() -> None:
    shard = full_shard()
    for batch, queue in enumerate(QUEUES):
        shard.batch(batch, arrival(queue), *silent(queue))
        assert size_bytes(shard) < ROOM_BYTES + SLACK_BYTES
    assert size_bytes(shard) >= ROOM_BYTES


def test_also_within_one_batch() -> None:
    assert ROOM_BYTES <= size_bytes(filled()) < ROOM_BYTES + SLACK_BYTES


def test_so_do_the_marks_of_small_transactions_of_a_session_with_a_long_name() -> None:
    shard = full_shard()
    shard.batch(0, *map(arrival, QUEUES))
    shard.batch(0, *(taken(queue, LONGEST, str(number)) for queue in QUEUES for number in range(50)))
    before_bytes = size_bytes(shard)
    shard.batch(LEASE)
    assert before_bytes < size_bytes(shard) < ROOM_BYTES + SLACK_BYTES


def test_so_do_definitions() -> None:
    shard = full_shard()
    commands = [
        command("CREATE_EVENT_NOTIFICATION", queue, notification=f"{number}{LONGEST}"[:128], service=LONGEST)
        for queue in QUEUES
        for number in range(20)
    ]
    assert reasons(shard.batch(0, *commands)) == {"too many definitions", "too many queues"}
    assert size_bytes(shard) < 1.5 * ROOM_BYTES + SLACK_BYTES


def test_so_do_tasks_which_copy_their_definition() -> None:
    shard = full_shard()
    clause = {"procedure_name": LONGEST, "execute_as": LONGEST, "max_queue_readers": 1_000}
    shard.batch(0, *(command("CREATE_QUEUE", queue, activation=clause) for queue in QUEUES[:10]))
    started = 0
    for batch in range(1, 7):
        takers = (of_session("RECEIVE", queue, "r", result="EMPTY", where=True) for queue in QUEUES[:10])
        outputs = shard.batch(batch * 2 * W, *map(arrival, QUEUES[:10]), *takers)
        started += len(of_topic(outputs, "queue-tasks"))
        assert size_bytes(shard) < 1.5 * ROOM_BYTES + SLACK_BYTES
    assert started > 10


class TestOthers:
    def test_a_queue_that_was_there_is_activated(self) -> None:
        shard = filled()
        assert activations(shard.batch(2 * SECOND, arrival("good")))[0].key == b"good"

    def test_its_readers_results_are_taken(self) -> None:
        shard = filled()
        commit = of_session("COMMIT", "good", "reader", transaction_id="t")
        result = of_session("RECEIVE", "good", "new", result="MESSAGES", messages=1)
        none = of_session("RECEIVE", "good", "new", result="EMPTY", unread=0)
        assert reasons(shard.batch(2 * SECOND, commit, arrival("good"), result, none)) == set()

    def test_commands_are_taken(self) -> None:
        shard = filled()
        commands = [
            command("CREATE_QUEUE", "defined", activation={"procedure_name": "p"}),
            command("CREATE_EVENT_NOTIFICATION", "good", notification="n", service="s"),
            command("ALTER_QUEUE", QUEUES[0], status="OFF"),
        ]
        assert reasons(shard.batch(2 * SECOND, *commands)) == set()

    def test_new_transactions_are_taken_again_when_others_end(self) -> None:
        shard = filled()
        new = taken("good", "new", "t")
        assert reasons(shard.batch(2 * SECOND, new)) == {"too many transactions"}
        ends = [of_session("SESSION_ENDED", QUEUES[0], f"s{number}") for number in range(30)]
        assert reasons(shard.batch(3 * SECOND, *ends)) == set()
        assert reasons(shard.batch(4 * SECOND, new)) == set()
        # The same holds after a queue is dropped.
        shard = filled()
        shard.batch(2 * SECOND, command("DROP_QUEUE", QUEUES[0]))
        assert reasons(shard.batch(3 * SECOND, new)) == set()
