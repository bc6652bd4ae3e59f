"""The Spark keys of the shards, chosen so that Spark spreads them evenly.

Spark puts a key into the shuffle partition of its hash. Of the keys 0 to 7, five go into one of two partitions and
three into the other, and a batch waits for the slower partition. So each shard gets a key whose hash leads to the
wanted partition.
"""

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (the customary name)

# A shard's state is written whole when one of its queues changes, so shards stay small: 1,000 to 2,000 queues each at
# 10,000 queues. Each shard costs a batch some 3 ms, even if it is empty, so there are no more of them.
DEFAULT_SHARDS = 8

_MASK = 0xFFFFFFFF
# The seed of Spark's HashPartitioning (org.apache.spark.sql.catalyst.expressions.Murmur3Hash).
_SEED = 42


def balanced_keys(shards: int, partitions: int) -> list[int]:
    """Returns the key of each shard: the smallest keys that put shard n into partition n modulo `partitions`."""
    keys: list[int] = []
    candidates: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
    candidate = 0
    for shard in range(shards):
        waiting = candidates[shard % partitions]
        while not waiting:
            candidates[partition_of(candidate, partitions)].append(candidate)
            candidate += 1
        keys.append(waiting.pop(0))
    return keys


def shard_of(column: str, shard_keys: Sequence[int]) -> Column:
    """Returns the key of a queue's shard; the column has the queue's name, in bytes."""
    every_shard = F.array(*map(F.lit, shard_keys))
    return F.element_at(every_shard, F.pmod(F.xxhash64(column), F.lit(len(shard_keys))).cast("int") + 1)


def partition_of(key: int, partitions: int) -> int:
    """Returns the shuffle partition of an integer key: Murmur3 (x86, 32 bits) of its four bytes, like Spark."""
    mixed = _rotate(key * 0xCC9E2D51, 15) * 0x1B873593 & _MASK
    value = _rotate(_SEED ^ mixed, 13) * 5 + 0xE6546B64 & _MASK
    value ^= 4  # bytes
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK
    value ^= value >> 16
    return (value - (1 << 32) if value >> 31 else value) % partitions  # signed, and never negative: pmod


def _rotate(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> 32 - bits) & _MASK
