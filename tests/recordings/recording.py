"""A file with the batches of router's shards: what each got, and what it wrote.

A recording holds only what does not depend on the classes of the code: records and rows as they cross the wire, the
settings as a checkpoint keeps them, and states as Spark keeps them. So other code can do the same batches again.
"""

import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from streaming.spark.routing.shard_state import StateRow
from streaming.spark.shard_worker import TakenShard
from streaming.wire.output_records import Headers

SUFFIX = ".xz"
_LENGTH_BYTES = 4

# Topic without its prefix, partition, offset, timestamp, key, value (of a message: its envelope), length of the whole
# value.
Record = tuple[str, int, int, int, bytes | None, bytes | None, int]
Row = tuple[str, bytes | None, bytes | None, Headers | None, int | None]


class Restored(Struct, array_like=True):
    """The beginning of a restored shard, as shard_state.RestoredShard has it."""

    state: StateRow | None
    ends: tuple[int, int]
    suspects: list[Any]


class Taken(Struct):
    """The result of a batch.

    Attributes:
        rows: The rows that the shard writes, in order.
        wake_delay_ms: The time until the shard wakes up.
        done: Periodic task -> the number of things that the batch has done for it.
    """

    rows: list[Row]
    wake_delay_ms: int
    done: dict[str, int]


class Step(Struct):
    """A batch of a shard.

    Attributes:
        partition: The shard's partition.
        batch_ms: The batch's timestamp.
        settings: The settings and the version of the rules, as checkpoint_layout.plain returns them.
        records: The records, in no order.
        taken: The result.
        after: The number of the step in this recording with whose state the shard begins; None: with none of them.
        state: That state as Spark keeps it, by STATE_SCHEMA. Not every step after another one has it.
        restored: The beginning of a shard without state that is restored.
    """

    partition: int
    batch_ms: int
    settings: dict[str, Any]
    records: list[Record]
    taken: Taken
    after: int | None = None
    state: StateRow | None = None
    restored: Restored | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Step).decode


def plain_result(taken: TakenShard) -> Taken:
    """Returns the result of a batch as recordings have it."""
    return Taken([*taken.rows], taken.wake_delay_ms, dict(taken.done))


def write(file: Path, steps: Iterable[Step]) -> None:
    """Writes a recording."""
    with lzma.open(file, "wb") as content:
        for step in steps:
            encoded = _encode(step)
            content.write(len(encoded).to_bytes(_LENGTH_BYTES, "big") + encoded)


def read(file: Path) -> Iterator[Step]:
    """Yields the steps of a recording, in order."""
    with lzma.open(file) as content:
        while length := content.read(_LENGTH_BYTES):
            yield _decode(content.read(int.from_bytes(length, "big")))


def files_in(places: Iterable[Path]) -> list[Path]:
    """Returns the recordings among files and in folders."""
    found = [sorted(each.rglob(f"*{SUFFIX}")) if each.is_dir() else [each] for each in places]
    return [file for files in found for file in files]
