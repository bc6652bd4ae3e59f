"""The records of a shard's batch, by source and in order."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from streaming.spark.routing.sources import RouterSource
from streaming.wire.dead_letters import SourceRecord, dead_letter_row
from streaming.wire.output_records import OutputRow
from streaming.wire.topics import Topics


class Record(NamedTuple):
    """A record of a batch, by blocks.RECORDS. The value of a message is its envelope (query.py)."""

    source: int
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    value_bytes: int


def by_source(batch: pa.Table) -> list[list[Record]]:
    """Returns the records of each source in order. A shard gets one partition of each topic, so offsets order them."""
    found: list[list[Record]] = [[] for _ in RouterSource]
    if not len(batch):
        return found
    order = pa.array(np.lexsort((batch.column("offset").to_numpy(), batch.column("source").to_numpy())))
    columns = [batch.column(name).take(order).to_pylist() for name in Record._fields]
    for record in map(Record, *columns):
        found[record.source].append(record)
    return found


def dead_letter(record: Record, topic: str, reason: str, topics: Topics) -> OutputRow:
    """Returns the dead letter of a record that every shard gets, with its key and value."""
    _, partition, offset, timestamp_ms, key, value, value_bytes = record
    source = SourceRecord(topic, partition, offset, timestamp_ms, key, value, value_bytes)
    return dead_letter_row(source, reason, topics.service_dead_letters)
