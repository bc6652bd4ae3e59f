"""What a worker does with one batch of one shard, without Kafka and Spark: events per second, and a profile.

.venv/bin/python benchmarks/shard.py [--events 40000] [--queues 1250] [--batches 10] [--profile]
"""

import argparse
import cProfile
import json
import pstats
import statistics
import time
from collections.abc import Iterator

import pandas as pd
from generate import InputSet, events

from streaming.activations import ActivationFormat
from streaming.core.settings import CoreSettings
from streaming.outputs import ServerNames
from streaming.shards import RECORD_COLUMNS, ShardSettings, Source, run_shard

HOUR_MS = 3_600_000
SETTINGS = ShardSettings(
    CoreSettings(quiet_window_ms=HOUR_MS, external_activation_timeout_ms=HOUR_MS),
    "",
    ServerNames("server", "database"),
    ActivationFormat.JSON,
    logs_batches=False,
)
# Arrow hands rows over in pieces of this many (spark.sql.execution.arrow.maxRecordsPerBatch).
ROWS_PER_FRAME = 10_000


class State:
    """A shard's state between batches, as Spark keeps it."""

    def __init__(self) -> None:
        self.value: tuple | None = None
        self.batch_ms = 0

    @property
    def exists(self) -> bool:
        """Whether there is one."""
        return self.value is not None

    @property
    def get(self) -> tuple:
        """The state."""
        assert self.value is not None  # noqa: S101
        return self.value

    def update(self, value: tuple) -> None:
        """Keeps it."""
        self.value = value

    def getCurrentProcessingTimeMs(self) -> int:  # noqa: N802
        """The batch's timestamp."""
        return self.batch_ms


def frames(batch: list[tuple]) -> list[pd.DataFrame]:
    """The records of a batch as Spark hands them over."""
    types = {"source": "int8", "partition": "int32", "offset": "int64", "timestamp_ms": "int64", "value_bytes": "int32"}
    return [
        pd.DataFrame(batch[at : at + ROWS_PER_FRAME], columns=list(RECORD_COLUMNS)).astype(types)
        for at in range(0, len(batch), ROWS_PER_FRAME)
    ]


def batches(arguments: argparse.Namespace) -> Iterator[list[tuple]]:
    """Batches of records of one shard."""
    batch = []
    for number, (is_arrival, queue, value) in enumerate(
        events(InputSet("", arguments.events * arguments.batches, arguments.queues))
    ):
        text = json.dumps(value, separators=(",", ":")).encode()
        source = Source.ARRIVALS if is_arrival else Source.RECEIVES
        batch.append(
            (source.value, number % 4, number, 1_700_000_000_000 + number // 100, queue.encode(), text, len(text))
        )
        if len(batch) == arguments.events:
            yield batch
            batch = []


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=40_000, help="in a batch")
    parser.add_argument("--queues", type=int, default=1_250)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    state = State()
    rates = []
    profile = cProfile.Profile()
    for number, batch in enumerate(batches(arguments)):
        pieces = frames(batch)
        state.batch_ms = 1_700_000_000_000 + number * 1_000
        begin_s = time.perf_counter()
        if arguments.profile:
            profile.enable()
        for _ in run_shard(iter(pieces), state, SETTINGS, lambda _batch_ms, _delay_ms: None):
            pass
        profile.disable()
        rates.append(len(batch) / (time.perf_counter() - begin_s))
    print(f"{statistics.median(rates):,.0f} events/s (min {min(rates):,.0f}, max {max(rates):,.0f})")
    if arguments.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
