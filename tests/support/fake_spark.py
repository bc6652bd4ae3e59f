"""A replacement for Spark for tests of run_shard: a shard's state, and the records of a batch as a data frame."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

import pandas as pd
import pyarrow as pa

from streaming.core.activation.settings import CoreSettings
from streaming.spark.activation.run_shard import run_shard
from streaming.spark.activation.shard_settings import ShardSettings
from streaming.spark.activation.shard_state import ShardState, StateRow
from streaming.spark.activation.sources import Source
from streaming.spark.blocks import EVERY_SHARD, RECORDS, pack
from streaming.spark.shard_worker import TakenShard, take_batch
from streaming.wire.notifications import ActivationFormat
from streaming.wire.ticks import REPORTS_LOST

SETTINGS = ShardSettings(CoreSettings(), "", "server", "database", ActivationFormat.JSON, logs_batches=False)

SHARD = 7


class FakeGroupState:
    """The part of pyspark's GroupState that a shard uses.

    Attributes:
        batch_ms: The batch's timestamp.
        value: The stored value; None if there is none.
        updates: How often a value was stored.
    """

    def __init__(self, value: tuple[Any, ...] | None = None, batch_ms: int = 0) -> None:
        self.value = value
        self.batch_ms = batch_ms
        self.updates = 0

    @property
    def exists(self) -> bool:
        return self.value is not None

    @property
    def get(self) -> tuple[Any, ...]:
        assert self.value is not None
        return self.value

    def update(self, value: tuple[Any, ...]) -> None:
        self.value = value
        self.updates += 1

    def getCurrentProcessingTimeMs(self) -> int:  # noqa: N802  (Spark's name)
        return self.batch_ms


@dataclass(frozen=True)
class Record:
    """One input record. Without `value_bytes`, its size is the length of its value."""

    source: Source
    value: bytes | None
    key: bytes | None
    offset: int = 0
    partition: int = 0
    timestamp_ms: int = 0
    value_bytes: int | None = None


def record(source: Source, value: dict[str, Any], **more: Any) -> Record:
    """Returns a record with a value. Its key is the value's queue, unless `more` has another key."""
    if "key" not in more:
        more["key"] = value["queue"].encode()
    return Record(source, json.dumps(value, ensure_ascii=False).encode(), **more)


def arrival(queue: str = "Q", **more: Any) -> Record:
    return record(Source.ARRIVALS, {"queue": queue} | more)


def receive(result: str, queue: str = "Q", **more: Any) -> Record:
    return record(Source.RECEIVES, {"type": "RECEIVE", "queue": queue, "session_id": "r", "result": result} | more)


def command(kind: str, queue: str = "Q", **more: Any) -> Record:
    return record(Source.COMMANDS, {"type": kind, "queue": queue} | more)


TICK = Record(Source.TICKS, None, None)
REPORTS_ARE_LOST = Record(Source.TICKS, REPORTS_LOST, None)


def table(records: Iterable[Record]) -> pa.Table:
    """Returns the records, ticks included, as a Spark task reads them."""
    rows = [asdict(one) | {"value_bytes": one.value_bytes or len(one.value or b"")} for one in records]
    return pa.Table.from_pylist(rows, RECORDS)


def frame(records: Sequence[Record]) -> pd.DataFrame:
    """Returns the records as Spark hands them over to the only shard."""
    read = table(records)
    batches = read.append_column(
        "shard", pa.array([EVERY_SHARD if one == TICK else SHARD for one in records], pa.int32())
    ).to_batches()
    return pd.concat([blocks.to_pandas() for blocks in pack(batches, [SHARD])])


@dataclass(frozen=True)
class Output:
    """One written record."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]

    @property
    def json(self) -> Any:
        assert self.value is not None
        return json.loads(self.value)


@dataclass
class FakeShard:
    """One shard, batch by batch. Records get offsets and timestamps in the order in which they are given.

    Attributes:
        settings: The settings of the shard.
        state: The shard's state after the last batch.
        offset: The offset of the next record.
        wakes: The shard's reports to the driver: (batch timestamp, delay until the shard must be checked again).
        taken_over: The state with which the shard begins if it has none.
    """

    settings: ShardSettings = SETTINGS
    state: FakeGroupState = field(default_factory=FakeGroupState)
    offset: int = 0
    wakes: list[tuple[int, int]] = field(default_factory=list)
    taken_over: StateRow | None = None

    def batch(self, batch_ms: int, *records: Record) -> list[Output]:
        """Runs one batch with these records and a tick; returns its output."""
        numbered = []
        for index, one in enumerate(records):
            numbered.append(replace(one, offset=self.offset, timestamp_ms=batch_ms + index))
            self.offset += 1
        return self.batch_as_is(batch_ms, [frame([*numbered, TICK])])

    def batch_as_is(self, batch_ms: int, frames: list[pd.DataFrame]) -> list[Output]:
        """Runs one batch with exactly these rows; returns its output."""
        self.state.batch_ms = batch_ms
        outputs = []
        for rows in take_batch(SHARD, iter(frames), cast(Any, self.state), self._take_shard, self._report_wake):
            for topic, key, value, names, contents, _ in rows.itertuples(index=False):
                outputs.append(Output(topic, key, value, dict(zip(names or [], contents or [], strict=True))))
        return outputs

    def _take_shard(self, _key: int, kept: tuple[Any, ...] | None, batch: pa.Table, batch_ms: int) -> TakenShard:
        return run_shard(kept, batch, batch_ms, self.settings, self.taken_over)

    def _report_wake(self, _key: int, batch_ms: int, delay_ms: int) -> None:
        self.wakes.append((batch_ms, delay_ms))

    def queues(self) -> dict[str, tuple[int, bytes]]:
        """Returns all queues of the state: name -> (wake-up, snapshot)."""
        shard = ShardState.of_row(self.state.get)
        shard.take_up()
        return shard.queues

    @property
    def clock_ms(self) -> int:
        return int(self.state.get[1])


def of_topic(outputs: list[Output], topic: str) -> list[Output]:
    """Returns the output to one topic."""
    return [output for output in outputs if output.topic == topic]


def activations(outputs: list[Output]) -> list[Output]:
    return of_topic(outputs, "queue-activations")
