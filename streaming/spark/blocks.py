"""Packs records into blocks, which cross Spark's shuffle. A block is one row with a task's records for one shard.

With one row per record, the shuffle, its sort and the way into Python would cost more than all other work together.
Each byte of a block is copied a dozen times on its way, into buffers that grow step by step, so blocks are compressed.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from streaming.spark import worker_gc
from streaming.spark.compression import compress, decompress
from streaming.wire.input_records import MAX_RECORD_BYTES

# The columns of a record. `source` is the number that the query gives to the record's source. `value` may be cut;
# `value_bytes` is the length of the whole value.
RECORDS = pa.schema(
    [
        ("source", pa.int8()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("value_bytes", pa.int32()),
    ]
)
BLOCKS = pa.schema([("shard", pa.int32()), ("block", pa.binary())])
BLOCKS_DDL = "shard int, block binary"
# The `shard` of a record that only says that every shard must be checked. Each shard gets an empty block for it.
EVERY_SHARD = -1
# The `shard` of a record of which each shard gets a copy.
COPY_TO_EVERY_SHARD = -2
# The approximate limit of a block before compression. Records are also split by shard in portions of this size, unless
# Spark hands over larger ones: 32,000 common records, which are 0.5 MiB for each of 8 shards.
MAX_BLOCK_BYTES = 4 * 2**20
# The fastest of Arrow's codecs to decompress.
_codec = pa.Codec("lz4_raw")

# A value that is too long for any valid record is kept only for its dead letter. Spark limits a batch by records and
# not by bytes, and a shard has its whole batch in memory. So a task shortens such values once it has read this many
# bytes of them.
MAX_OVERLONG_BYTES = 64 * 2**20
SHORTENED_VALUE_BYTES = 4 * 2**10


def pack(
    batches: Iterable[pa.RecordBatch], shard_keys: Sequence[int], longest_valid_bytes: int = MAX_RECORD_BYTES
) -> Iterator[pa.RecordBatch]:
    """Packs the records that a task has read.

    Args:
        batches: Records, with the columns of RECORDS and `shard`, which may be EVERY_SHARD or COPY_TO_EVERY_SHARD.
        shard_keys: The Spark keys of all shards.
        longest_valid_bytes: The length of the longest value of a valid record.

    Yields:
        Blocks, with the schema BLOCKS.
    """
    worker_gc.spare_what_is_loaded("pack")
    for batch in _joined(_without_flood(batches, longest_valid_bytes)):
        shards_of = batch.column("shard").to_numpy()
        blocks: list[tuple[int, bytes | None]] = [
            # Packed once, also for all shards: the bytes are the same.
            (key, block)
            for shard, records in _by_shard(batch, np.flatnonzero(shards_of != EVERY_SHARD))
            for piece in _pieces(records)
            for block in [compress(piece.serialize(), _codec)]
            for key in (shard_keys if shard == COPY_TO_EVERY_SHARD else [shard])
        ]
        if (shards_of == EVERY_SHARD).any():
            blocks += [(shard, None) for shard in shard_keys]
        yield pa.RecordBatch.from_arrays(
            [[shard for shard, _ in blocks], [block for _, block in blocks]], schema=BLOCKS
        )


def _without_flood(batches: Iterable[pa.RecordBatch], longest_valid_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yields the batches of a task. Shortens overlong values beyond MAX_OVERLONG_BYTES in all."""
    seen_bytes = 0
    for batch in batches:
        value = batch.column("value")
        lengths = pc.fill_null(pc.binary_length(value), 0).to_numpy().astype(np.int64)
        overlong_bytes = np.where(lengths > longest_valid_bytes, lengths, 0)
        if not overlong_bytes.any():
            yield batch
            continue
        is_shortened = (overlong_bytes > 0) & (seen_bytes + np.cumsum(overlong_bytes) > MAX_OVERLONG_BYTES)
        seen_bytes += int(overlong_bytes.sum())
        shortened = pc.if_else(pa.array(is_shortened), pc.binary_slice(value, 0, SHORTENED_VALUE_BYTES), value)
        yield batch.set_column(batch.schema.get_field_index("value"), "value", shortened)


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the batches of a task. Joins small batches, because few large blocks cost less to split and to read."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        batch_bytes = batch.nbytes
        if waiting and waiting_bytes + batch_bytes > MAX_BLOCK_BYTES:
            yield _one_of(waiting)
            waiting, waiting_bytes = [], 0
        waiting.append(batch)
        waiting_bytes += batch_bytes
    if waiting:
        yield _one_of(waiting)


def _one_of(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    # Arrow would copy a single batch too, which may have a gigabyte.
    return pa.concat_batches(batches) if len(batches) > 1 else batches[0]


def _by_shard(batch: pa.RecordBatch, positions: np.ndarray) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields the records at these positions, shard by shard, with the schema RECORDS."""
    # 16 bits are enough for the limit of --shards, and NumPy sorts them by radix.
    shards = batch.column("shard").to_numpy()[positions].astype(np.int16)
    order = np.argsort(shards, kind="stable")
    shards, positions = shards[order], positions[order]
    records = pa.RecordBatch.from_arrays([batch.column(name) for name in RECORDS.names], schema=RECORDS)
    records = records.take(pa.array(positions))
    for begin, end in runs_of(shards):
        yield int(shards[begin]), records.slice(begin, end - begin)


def runs_of(values: np.ndarray) -> list[tuple[int, int]]:
    """Returns the start and the end of each run of equal values."""
    if not len(values):
        return []
    inner = (np.flatnonzero(values[1:] != values[:-1]) + 1).tolist()
    return list(pairwise([0, *inner, len(values)]))


def _pieces(records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yields the records in pieces that are small enough for Spark's rows."""
    pieces = -(-records.nbytes // MAX_BLOCK_BYTES)
    length = -(-len(records) // pieces)
    for begin in range(0, len(records), length):
        yield records.slice(begin, length)


def unpack(frames: Iterable[pd.DataFrame]) -> pa.Table:
    """Returns the records of a shard's blocks, with the schema RECORDS, in no particular order.

    Args:
        frames: Blocks as Spark hands them over, with the columns of BLOCKS.
    """
    blocks = (block for frame in frames for block in frame["block"] if block is not None)
    return pa.Table.from_batches(
        (pa.ipc.read_record_batch(decompress(block, _codec), RECORDS) for block in blocks), RECORDS
    )
