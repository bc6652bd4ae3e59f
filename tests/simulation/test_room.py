"""A shard with little room, under random records with names of any length. Its state never outgrows the room.

A failure prints its seed and the command that replays it.
"""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from streaming.core.activation.room import MAX_GROWTH_BYTES
from streaming.core.activation.settings import COMMANDS_ROOM_PERCENT, QUEUE_BYTES, CoreSettings
from streaming.core.times import Clock
from streaming.spark.activation.shard_state import ShardState
from streaming.spark.activation.sources import Source
from streaming.spark.activation.step_shard import step_shard
from tests.support.fake_spark import SETTINGS, Record, record, table
from tests.support.histories import DAY, SECOND
from tests.support.seeds import seeds

FIXED_SEEDS = (1, 2, 3, 4)
BATCHES = 100
MAX_QUEUES = 100
SHARD = replace(SETTINGS, core=CoreSettings(max_queues_per_shard=MAX_QUEUES))
ROOM_BYTES = MAX_QUEUES * QUEUE_BYTES
# Growth that is not refused: the event that uses up the room, the queue that it creates, and the numbers of existing
# queues, which take more bytes as they grow.
ONE_EVENT_BYTES = MAX_GROWTH_BYTES + 2_048
QUEUE_COUNTS_BYTES = 64
NOW_MS = 1_700_000_000_000


class Writer:
    """Returns random records; `has_commands` adds commands."""

    def __init__(self, random: Random, has_commands: bool) -> None:
        self._random = random
        self._has_commands = has_commands
        self._queues = [self._name(120) for _ in range(40)]
        self._ids = [self._name(256) for _ in range(30)]

    def _name(self, longest: int) -> str:
        length = self._random.choice((1, 8, 36, longest))
        return "".join(self._random.choices("ab0\u00e9\u65e5\U0001f600", k=length))

    def records(self) -> list[Record]:
        return [self._record() for _ in range(self._random.choice((0, 1, 30, 300)))]

    def _record(self) -> Record:
        random = self._random
        queue = random.choice(self._queues) if random.random() < 0.9 else self._name(120)
        source = random.choices((Source.ARRIVALS, Source.RECEIVES, Source.COMMANDS), (3, 6, 6 * self._has_commands))[0]
        value: dict[str, Any] = {"queue": queue}
        if source is Source.ARRIVALS:
            value["count"] = random.choice((1, 10**9))
        elif source is Source.RECEIVES:
            value |= self._receive()
        else:
            value |= self._command()
        return record(source, value)

    def _receive(self) -> dict[str, Any]:
        random = self._random
        session = {"session_id": random.choice(self._ids)}
        transaction = {"transaction_id": random.choice(self._ids)}
        received = {"type": "RECEIVE", "result": "MESSAGES", "messages": random.choice((1, 10**9))}
        task = {"task_id": random.choice(self._ids)}
        kinds: dict[float, dict[str, Any]] = {
            8: received | session | transaction,
            2: {"type": "RECEIVE", "result": "WAITING"} | session,
            1: {"type": "RECEIVE", "result": "EMPTY"} | session,
            0.9: {"type": "COMMIT"} | session | transaction,
            0.8: {"type": "ROLLBACK"} | session | transaction,
            0.3: {"type": "SESSION_ENDED"} | session,
            0.7: {"type": "TASK_STARTED", "host": random.choice(self._ids)} | task,
            0.6: {"type": "TASK_EXITED"} | task,
        }
        return random.choices(list(kinds.values()), list(kinds))[0]

    def _command(self) -> dict[str, Any]:
        random = self._random
        notification = {"notification": random.choice(self._ids)[:128], "service": random.choice(self._ids)}
        clause = {"procedure_name": random.choice(self._ids), "execute_as": random.choice(self._ids)}
        options = {"activation": clause | {"max_queue_readers": 5}, "status": random.choice(("ON", "ON", "OFF"))}
        kinds: dict[float, dict[str, Any]] = {
            5: {"type": "CREATE_EVENT_NOTIFICATION"} | notification,
            3: {"type": "ALTER_QUEUE"} | options,
            1: {"type": "CREATE_QUEUE"} | options,
            0.5: {"type": "DROP_EVENT_NOTIFICATION", "notification": notification["notification"]},
            0.1: {"type": "DROP_QUEUE"},
        }
        return random.choices(list(kinds.values()), list(kinds))[0]


def slack_bytes(shard: ShardState) -> int:
    return ONE_EVENT_BYTES + QUEUE_COUNTS_BYTES * len(shard)


@pytest.mark.parametrize("has_commands", [False, True], ids=["events", "commands too"])
@pytest.mark.parametrize("seed", seeds("ROOM_SEED", FIXED_SEEDS))
def test_the_state_never_outgrows_its_room(seed: int, has_commands: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    print(f"ROOM_SEED={seed} pytest {__file__}")  # noqa: T201  (shown if the test fails)
    monkeypatch.setattr("streaming.core.activation.room.MIN_ROOM_BYTES", 0)
    random = Random(seed)  # noqa: S311  (no secret)
    writer = Writer(random, has_commands)
    shard, batch_ms = ShardState(Clock(NOW_MS, NOW_MS)), NOW_MS
    room_bytes = ROOM_BYTES * (COMMANDS_ROOM_PERCENT if has_commands else 100) // 100
    offset = most_bytes = 0
    reasons = set()
    for _ in range(BATCHES):
        records = []
        for one in writer.records():
            offset += 1
            records.append(replace(one, offset=offset, timestamp_ms=batch_ms))
        batch_ms += random.choice((0, SECOND, 5 * SECOND, 30 * SECOND, 61 * SECOND))
        if random.random() < 0.02:
            batch_ms += DAY
        shard.clock.advance(batch_ms)
        rows = step_shard(shard, table(records), SHARD)
        reasons |= {
            (headers or [])[0][1].split(b":")[0] for topic, _, _, headers, _ in rows if topic == "queue-dead-letters"
        }
        stored = ShardState.of_row(shard.to_row())
        assert abs(stored.size_bytes - shard.size_bytes) <= 8, "the size is known within a batch"
        assert stored.size_bytes <= room_bytes + slack_bytes(shard)
        most_bytes = max(most_bytes, stored.size_bytes)
        shard = stored
    assert most_bytes >= ROOM_BYTES, "the records never used up the room"
    assert b"too many transactions" in reasons
    assert (b"too many definitions" in reasons) == has_commands
