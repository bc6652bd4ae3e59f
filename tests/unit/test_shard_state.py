"""A shard's state value: resting queues stay as they are, and a batch takes up only the queues that it touches."""

from random import Random

import pyarrow as pa
import pytest

from streaming.core.times import FOREVER_MS, Clock
from streaming.spark.activation.shard_state import ShardState

NOW_MS = 1_700_000_000_000
Queues = dict[str, tuple[int, bytes]]


def stored(queues: Queues, now_ms: int = NOW_MS) -> ShardState:
    """Returns a shard with these queues, stored and opened again."""
    shard = ShardState(Clock(now_ms, now_ms), queues=dict(queues))
    shard.settle_wake()
    return ShardState.of_row(shard.to_row())


def names(*queues: str) -> pa.Array:
    return pa.array([queue.encode() for queue in queues], pa.binary())


def all_of(shard: ShardState) -> Queues:
    shard.take_up()
    return shard.queues


def random_queues(random: Random) -> Queues:
    earliest_ms = random.choice([-5, 1, 1, 1])  # with and without queues that are due
    return {
        f"{random.choice(['q', 'Ünicode.😀.', 'a.b.'])}{number}": (
            NOW_MS + random.randrange(earliest_ms, 9),
            random.randbytes(random.randrange(1, 200)),
        )
        for number in range(random.randrange(40))
    }


@pytest.mark.parametrize("seed", range(30))
def test_over_many_batches_it_holds_what_a_dict_would(seed: int) -> None:
    random = Random(seed)  # noqa: S311  (no secret)
    expected = random_queues(random)
    shard = stored(expected)
    for _ in range(10):
        changed = random_queues(random)
        touched = {*changed, "unknown", *random.sample([*expected], k=random.randrange(len(expected) + 1))}
        shard.take_up(names(*touched))
        due = {name for name, (wake_ms, _) in expected.items() if wake_ms <= NOW_MS}
        assert shard.due() == due
        assert shard.queues.keys() == (touched & expected.keys()) | due
        assert len(shard) == len(expected)
        for name in [name for name in shard.queues if random.random() < 0.3]:
            del shard.queues[name], expected[name]
        shard.queues |= changed
        expected |= changed
        shard.settle_wake()
        assert shard.wake_ms == min((wake_ms for wake_ms, _ in expected.values()), default=FOREVER_MS)
        shard = ShardState.of_row(shard.to_row())
        assert len(shard.queues) == 0
    assert all_of(shard) == expected


def test_queues_that_are_neither_named_nor_due_stay_where_they_are() -> None:
    shard = stored({"named": (NOW_MS + 1, b"1"), "due": (NOW_MS, b"2"), "resting": (NOW_MS + 1, b"3")})
    shard.take_up(names("named", "new"))
    assert shard.queues == {"due": (NOW_MS, b"2"), "named": (NOW_MS + 1, b"1")}
    assert [name.as_py() for name in shard.resting.column("name")] == [b"resting"]


def test_a_shard_that_has_lost_all_its_queues() -> None:
    shard = stored({"last": (NOW_MS, b"1")})
    shard.take_up(names("last"))
    del shard.queues["last"]
    shard.settle_wake()
    assert shard.wake_ms == FOREVER_MS
    assert all_of(ShardState.of_row(shard.to_row())) == {}


def test_queues_alike_take_a_few_bytes_each() -> None:
    queues = {f"queue-{number:05}": (NOW_MS, b"\x96\xc2\xc3\xc3\xc0" * 20) for number in range(10_000)}
    shard = stored(queues)
    *_, packed = shard.to_row()
    assert len(packed) < 10 * len(queues)
    assert shard.size_bytes > 100 * len(queues)
