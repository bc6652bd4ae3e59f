"""Measures a worker without Kafka and Spark: events per second of the batches of one shard, and a profile.

.venv/bin/python benchmarks/shard.py [--events 40000] [--queues 1250] [--batches 10] [--profile]
"""

import argparse
import cProfile
import json
import pstats
import statistics
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from generate import InputSet, events

from streaming.core.activation.settings import CoreSettings
from streaming.spark.activation.run_shard import run_shard
from streaming.spark.activation.shard_settings import ShardSettings
from streaming.spark.activation.sources import Source
from streaming.spark.blocks import RECORDS, pack
from streaming.spark.shard_worker import TakenShard, take_batch
from streaming.wire.notifications import ActivationFormat

HOUR_MS = 3_600_000
SETTINGS = ShardSettings(
    CoreSettings(quiet_window_ms=HOUR_MS, external_activation_timeout_ms=HOUR_MS),
    "",
    "server",
    "database",
    ActivationFormat.JSON,
    logs_batches=False,
)


class State:
    """A shard's state between batches, with the interface of Spark's state."""

    def __init__(self) -> None:
        self.exists = False
        self.get: tuple[Any, ...] = ()
        self.batch_ms = 0

    def update(self, value: tuple[Any, ...]) -> None:
        """Stores the value."""
        self.exists, self.get = True, value

    def getCurrentProcessingTimeMs(self) -> int:  # noqa: N802  (Spark's name)
        """Returns the batch's timestamp."""
        return self.batch_ms


def read(batch: list[dict[str, Any]]) -> list[pa.RecordBatch]:
    """Returns the records of a batch as a Spark task reads them."""
    records = pa.Table.from_pylist(batch, RECORDS)
    as_read: list[pa.RecordBatch] = records.append_column("shard", pa.array([0] * len(batch), pa.int32())).to_batches()
    return as_read


def batches(arguments: argparse.Namespace) -> Iterator[list[dict[str, Any]]]:
    """Yields batches of records of one shard."""
    batch = []
    for number, (is_arrival, queue, value) in enumerate(
        events(InputSet("", arguments.events * arguments.batches, arguments.queues))
    ):
        text = json.dumps(value, separators=(",", ":")).encode()
        source = Source.ARRIVALS if is_arrival else Source.RECEIVES
        batch.append(
            {
                "source": source.value,
                "partition": number % 4,
                "offset": number,
                "timestamp_ms": 1_700_000_000_000 + number // 100,
                "key": queue.encode(),
                "value": text,
                "value_bytes": len(text),
            }
        )
        if len(batch) == arguments.events:
            yield batch
            batch = []


def take_shard(_key: int, kept: tuple[Any, ...] | None, batch: pa.Table, batch_ms: int) -> TakenShard:
    """Takes a shard through a batch, as the query does."""
    return run_shard(kept, batch, batch_ms, SETTINGS)


def measure(arguments: argparse.Namespace, profile: cProfile.Profile | None = None) -> tuple[list[float], list[float]]:
    """Returns the events per second of each batch: of packing into blocks, and of stepping the queues."""
    state: Any = State()
    pack_rates, rates = [], []
    for number, batch in enumerate(batches(arguments)):
        records = read(batch)
        state.batch_ms = 1_700_000_000_000 + number * 1_000
        begin_s = time.perf_counter()
        if profile is not None:
            profile.enable()
        blocks = [block.to_pandas() for block in pack(records, [0])]
        pack_rates.append(len(batch) / (time.perf_counter() - begin_s))
        begin_s = time.perf_counter()
        for _ in take_batch(0, iter(blocks), state, take_shard, lambda _key, _batch_ms, _delay_ms: None):
            pass
        if profile is not None:
            profile.disable()
        rates.append(len(batch) / (time.perf_counter() - begin_s))
    return pack_rates, rates


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=40_000, help="events in a batch")
    parser.add_argument("--queues", type=int, default=1_250)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    profile = cProfile.Profile() if arguments.profile else None
    for what, found in zip(("packed into blocks", "stepped"), measure(arguments, profile), strict=True):
        print(f"{what}: {statistics.median(found):,.0f} events/s (min {min(found):,.0f}, max {max(found):,.0f})")
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
