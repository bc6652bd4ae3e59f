"""Shards are spread evenly over Spark's partitions."""

from collections import Counter

import msgspec
import pytest

from streaming.spark.activation.checkpoint_layout import Layout
from streaming.spark.shard_keys import balanced_keys, partition_of

# SELECT pmod(hash(id), 5) FROM range(12), with id as INT, by Spark 4.2.
PARTITIONS_OF_0_TO_11 = [1, 3, 4, 1, 2, 1, 4, 2, 3, 4, 2, 3]


@pytest.mark.parametrize(("shards", "partitions"), [(8, 2), (8, 3), (1, 4), (16, 16), (5, 1), (100, 7)])
def test_each_partition_gets_its_share(shards: int, partitions: int) -> None:
    keys = balanced_keys(shards, partitions)
    assert len(set(keys)) == shards
    assert [partition_of(key, partitions) for key in keys] == [shard % partitions for shard in range(shards)]
    counts = Counter(partition_of(key, partitions) for key in keys)
    assert max(counts.values()) - min(counts.values(), default=0) <= 1


def test_it_is_sparks_hash() -> None:
    assert [partition_of(key, 5) for key in range(12)] == PARTITIONS_OF_0_TO_11


def test_a_checkpoint_of_an_older_version_keeps_its_keys() -> None:
    older = msgspec.json.decode(b'{"format_version":1,"shards":4,"topic_prefix":""}', type=Layout)
    assert older.keys == [0, 1, 2, 3]
