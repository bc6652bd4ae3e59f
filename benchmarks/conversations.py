"""Measures the router's decisions without Kafka and Spark: one worker per core, each with its own shards.

.venv/bin/python benchmarks/conversations.py [--workers 2] [--turns 5] [--profile]

Cases:
    new        each message begins a conversation
    spread     one message for each of 12,500 conversations, as 100,000 conversations have on 8 shards
    dense      100 messages for each of 125 conversations
    small      milliseconds of a batch of 1,000 messages for 8 shards, with 100,000 conversations and 9,980 routes
    let go     12,500 held messages, let go by one CREATE ROUTE
"""

import argparse
import cProfile
import json
import multiprocessing
import pstats
import statistics
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from confluent_kafka import murmur2
from machine import machine

from streaming.core.routing.conversation import Instance
from streaming.spark import worker_gc
from streaming.spark.blocks import RECORDS
from streaming.spark.routing.run_shard import run_shard
from streaming.spark.routing.shard_settings import RouterShardSettings
from streaming.spark.routing.sources import RouterSource

SHARDS = 8
PARTITION = 3
CONVERSATIONS = 12_500
SETTINGS = RouterShardSettings("", SHARDS, 1, Instance(frozenset()))
START_MS = 1_700_000_000_000


class Shard:
    """A shard and its input."""

    def __init__(self, routes: int = 0) -> None:
        """Defines two services; with routes, as many for other services."""
        self.state: tuple[Any, ...] | None = None
        self.batch_ms = START_MS
        self.offset = 0
        self.commands = 0
        names = (f"0000{number:012d}" for number in range(100 * CONVERSATIONS))
        own = (name for name in names if murmur2(name.encode(), SHARDS) == PARTITION)
        self.ids = [next(own) for _ in range(CONVERSATIONS)]
        rows = [
            self.command("CREATE_DATABASE", database="shop", broker_instance="a"),
            self.command("CREATE_SERVICE", service="//shop/orders", queue="orders"),
            self.command("CREATE_SERVICE", service="//stock/reserve", queue="reserve"),
        ]
        for number in range(routes):
            address = f"tcp://host-{number}:4022"
            rows.append(self.command("CREATE_ROUTE", route=f"r{number}", service_name=f"//{number}", address=address))
        self.run(rows)

    def run(self, rows: list[dict[str, Any]]) -> float:
        """Takes the shard through a batch. Returns the seconds that it took."""
        batch = pa.Table.from_pylist(rows, RECORDS)
        self.batch_ms += 100
        began_s = time.perf_counter()
        with worker_gc.no_collection():  # as in Spark's worker
            taken = run_shard(self.state, batch, self.batch_ms, SETTINGS, PARTITION)
        elapsed_s = time.perf_counter() - began_s
        self.state = taken.state or self.state
        return elapsed_s

    def command(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Returns a record of service-commands."""
        self.commands += 1
        fields = {"type": kind, "database": "shop", **fields}
        return self.record(RouterSource.COMMANDS, self.commands, b"shop", fields)

    def message(self, conversation_id: str, **fields: Any) -> dict[str, Any]:
        """Returns a record of service-messages."""
        self.offset += 1
        envelope = {
            "type": "MESSAGE",
            "conversation_id": conversation_id,
            "is_initiator": True,
            "from_service": "//shop/orders",
            "from_database": "shop",
            "to_service": "//stock/reserve",
            "message_type_name": "//stock/Reserve",
            **fields,
        }
        return self.record(RouterSource.MESSAGES, self.offset, conversation_id.encode(), envelope)

    def record(self, source: RouterSource, offset: int, key: bytes, fields: dict[str, Any]) -> dict[str, Any]:
        """Returns a record by blocks.RECORDS."""
        value = json.dumps(fields, separators=(",", ":")).encode()
        partition = PARTITION if source is RouterSource.MESSAGES else 0
        return {
            "source": source.value,
            "partition": partition,
            "offset": offset,
            "timestamp_ms": self.batch_ms,
            "key": key,
            "value": value,
            "value_bytes": len(value),
        }


def new(turns: int) -> list[float]:
    """Returns decisions per second of batches that begin conversations."""
    rates = []
    for _ in range(turns):
        shard = Shard()
        rates.append(CONVERSATIONS / shard.run([shard.message(each, begin=True) for each in shard.ids]))
    return rates


def spread(turns: int) -> list[float]:
    """Returns decisions per second of batches with one message for each conversation."""
    shard = with_conversations()
    return [CONVERSATIONS / shard.run([shard.message(each) for each in shard.ids]) for _ in range(turns)]


def dense(turns: int) -> list[float]:
    """Returns decisions per second of batches with 100 messages for each conversation."""
    shard = with_conversations()
    few = shard.ids[: CONVERSATIONS // 100] * 100
    return [len(few) / shard.run([shard.message(each) for each in few]) for _ in range(turns)]


def small(turns: int) -> list[float]:
    """Returns the milliseconds of 8 shards with 125 messages each, one after the other."""
    shard = with_conversations(routes=9_980)
    few = shard.ids[:125]
    return [1000 * SHARDS * shard.run([shard.message(each) for each in few]) for _ in range(turns)]


def let_go(turns: int) -> list[float]:
    """Returns decisions per second of letting held messages go, with the batches that it takes."""
    rates = []
    for _ in range(turns):
        shard = Shard()
        shard.run([shard.command("DROP_ROUTE", route="AutoCreatedLocal")])
        shard.run([shard.message(each, begin=True) for each in shard.ids])
        elapsed_s = shard.run([shard.command("CREATE_ROUTE", route="local", address="LOCAL")])
        while shard.state is not None and shard.state[3] <= shard.batch_ms:
            elapsed_s += shard.run([])
        rates.append(CONVERSATIONS / elapsed_s)
    return rates


def with_conversations(routes: int = 0) -> Shard:
    """Returns a shard with all its conversations begun."""
    shard = Shard(routes)
    shard.run([shard.message(each, begin=True) for each in shard.ids])
    return shard


CASES: dict[str, Callable[[int], list[float]]] = {
    "new": new,
    "spread": spread,
    "dense": dense,
    "small": small,
    "let go": let_go,
}


def measured(task: tuple[str, int]) -> float:
    """Returns the median of a case."""
    case, turns = task
    return statistics.median(CASES[case](turns))


def main() -> None:
    """Prints a line for each case: the sum of the workers' rates, or the time of a batch divided among them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    if arguments.profile:
        profile = cProfile.Profile()
        profile.runcall(spread, arguments.turns)
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
        return
    print(machine())
    with multiprocessing.get_context("spawn").Pool(arguments.workers) as pool:
        for case in CASES:
            found = pool.map(measured, [(case, arguments.turns)] * arguments.workers, chunksize=1)
            if case == "small":
                print(f"{case:>8}: {statistics.mean(found) / arguments.workers:>9,.0f} ms for 1,000 messages")
            else:
                print(f"{case:>8}: {sum(found):>9,.0f} decisions/s")


if __name__ == "__main__":
    main()
