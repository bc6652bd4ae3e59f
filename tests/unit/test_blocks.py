"""Blocks: each record that a task has read reaches its shard whole and once, however Spark divides the records."""

from random import Random

import pandas as pd
import pyarrow as pa
import pytest

from streaming.spark.activation.sources import Source
from streaming.spark.blocks import (
    BLOCKS,
    COPY_TO_EVERY_SHARD,
    EVERY_SHARD,
    MAX_BLOCK_BYTES,
    MAX_OVERLONG_BYTES,
    RECORDS,
    SHORTENED_VALUE_BYTES,
    pack,
    unpack,
)
from streaming.wire.input_records import MAX_RECORD_BYTES
from tests.support.fake_spark import TICK, Record, table

SHARD_KEYS = [3, 5, 11]


def read(records: list[Record], shards: list[int]) -> list[pa.RecordBatch]:
    """Returns records as a task reads them, each with its shard."""
    batches: list[pa.RecordBatch] = table(records).append_column("shard", pa.array(shards, pa.int32())).to_batches()
    return batches


def packed(batches: list[pa.RecordBatch]) -> dict[int, list[bytes | None]]:
    """Returns the blocks of each shard."""
    blocks: dict[int, list[bytes | None]] = {}
    for batch in pack(batches, SHARD_KEYS):
        assert batch.schema == BLOCKS
        for row in batch.to_pylist():
            blocks.setdefault(row["shard"], []).append(row["block"])
    return blocks


def unpacked(blocks: list[bytes | None]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = unpack([pd.DataFrame({"block": blocks})]).to_pylist()
    return rows


@pytest.mark.parametrize("seed", range(10))
def test_each_shard_gets_its_own_records_unchanged_and_no_others(seed: int) -> None:
    random = Random(seed)  # noqa: S311  (no secret)
    records = [
        Record(
            random.choice([Source.COMMANDS, Source.ARRIVALS, Source.RECEIVES]),
            random.choice([None, b"", b"{}", random.randbytes(40)]),
            random.choice([None, b"", b"Q", random.randbytes(5)]),
            offset=random.randrange(2**63),
            partition=random.randrange(2**31),
            timestamp_ms=random.randrange(2**63),
            value_bytes=random.randrange(1, 2**31),
        )
        for _ in range(random.randrange(1, 200))
    ]
    shards = [random.choice(SHARD_KEYS) for _ in records]
    cut = random.randrange(len(records) + 1)
    batches = read(records[:cut], shards[:cut]) + read(records[cut:], shards[cut:])
    blocks = packed(batches)
    assert blocks.keys() == set(shards)
    for shard in blocks:
        expected = [one for one, its in zip(table(records).to_pylist(), shards, strict=True) if its == shard]
        assert unpacked(blocks[shard]) == expected


def test_a_tick_reaches_every_shard_and_is_no_record() -> None:
    blocks = packed(read([TICK, TICK], [EVERY_SHARD] * 2))
    assert blocks.keys() == set(SHARD_KEYS)
    assert all(unpacked(found) == [] for found in blocks.values())


def test_a_tick_among_records_takes_nothing_away() -> None:
    arrived = Record(Source.ARRIVALS, b"{}", b"Q")
    blocks = packed(read([arrived, TICK], [5, EVERY_SHARD]))
    assert blocks.keys() == set(SHARD_KEYS)
    assert [row["key"] for row in unpacked(blocks[5])] == [b"Q"]


@pytest.mark.parametrize("seed", range(10))
def test_a_copied_record_reaches_every_shard_whole_and_the_others_only_theirs(seed: int) -> None:
    random = Random(seed)  # noqa: S311  (no secret)
    records = [
        Record(Source.ARRIVALS, random.randbytes(20), b"Q", offset=n, value_bytes=20)
        for n in range(random.randrange(1, 50))
    ]
    shards = [random.choice([*SHARD_KEYS, COPY_TO_EVERY_SHARD, EVERY_SHARD]) for _ in records]
    blocks = packed(read(records, shards))
    for key in SHARD_KEYS:
        expected = [
            one
            for one, its in zip(table(records).to_pylist(), shards, strict=True)
            if its in (key, COPY_TO_EVERY_SHARD)
        ]
        assert sorted(unpacked(blocks.get(key, [])), key=lambda row: str(row["offset"]).zfill(3)) == expected


def test_copied_records_are_packed_once() -> None:
    blocks = packed(read([Record(Source.COMMANDS, b"{}", b"Q")], [COPY_TO_EVERY_SHARD]))
    first, *others = (blocks[key][0] for key in SHARD_KEYS)
    assert all(other == first for other in others)


def test_the_longest_valid_value_is_the_querys_own() -> None:
    long = b"l" * 2 * MAX_RECORD_BYTES
    batches = read([Record(Source.ARRIVALS, long, b"Q")] * (MAX_OVERLONG_BYTES // len(long) + 2), [5] * 514)
    found = [
        row["value"]
        for batch in pack(batches, SHARD_KEYS, len(long))
        for row in unpacked(batch.column("block").to_pylist())
    ]
    assert found == [long] * 514


def test_large_records_make_more_blocks_not_larger_ones() -> None:
    random = Random(1)  # noqa: S311  (no secret)
    values = [random.randbytes(2**20) for _ in range(20)]  # random, so compression does not shorten them
    blocks = packed(read([Record(Source.ARRIVALS, value, b"Q") for value in values], [5] * len(values)))
    assert max(len(block or b"") for block in blocks[5]) < 2 * MAX_BLOCK_BYTES
    assert [row["value"] for row in unpacked(blocks[5])] == values


def test_small_pieces_of_what_is_read_share_blocks_up_to_their_size() -> None:
    random = Random(1)  # noqa: S311  (no secret)
    values = [random.randbytes(MAX_BLOCK_BYTES * 2 // 5) for _ in range(5)]
    blocks = packed([batch for value in values for batch in read([Record(Source.ARRIVALS, value, b"Q")], [5])])
    assert [[row["value"] for row in unpacked([block])] for block in blocks[5]] == [values[:2], values[2:4], values[4:]]


def test_a_block_of_ordinary_records_is_a_good_deal_shorter_than_they_are() -> None:
    values = [b'{"queue":"orders","message_id":"m-%d"}' % number for number in range(1_000)]
    [block] = packed(read([Record(Source.ARRIVALS, value, b"orders") for value in values], [5] * len(values)))[5]
    assert block is not None
    assert len(block) < sum(map(len, values)) / 2


def test_a_flood_of_overlong_values_is_shortened_and_nothing_else_is() -> None:
    overlong, valid = b"o" * 256 * 1024, b"v" * MAX_RECORD_BYTES
    whole = MAX_OVERLONG_BYTES // len(overlong)
    values = [overlong, valid] * (whole + 20)
    batches = [
        batch
        for begin in range(0, len(values), 100)
        for batch in read(
            [Record(Source.ARRIVALS, value, b"Q", value_bytes=10**6) for value in values[begin : begin + 100]],
            [5] * len(values[begin : begin + 100]),
        )
    ]
    rows = unpacked(packed(batches)[5])
    assert [row["value"] for row in rows] == [overlong, valid] * whole + [overlong[:SHORTENED_VALUE_BYTES], valid] * 20
    assert {row["value_bytes"] for row in rows} == {10**6}


def test_a_shard_without_records_is_an_empty_table() -> None:
    assert unpack([]).schema == RECORDS
    assert len(unpack([])) == 0
