"""The records of a shard's batch, by source and in order."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka import murmur2

from streaming.core.times import NEVER_MS
from streaming.spark.routing.sources import RouterSource
from streaming.wire.dead_letters import SourceRecord, dead_letter_row
from streaming.wire.output_records import OutputRow
from streaming.wire.topics import Topics


class Record(NamedTuple):
    """A record of a batch, with the schema blocks.RECORDS. The value of a message is its envelope (query.py)."""

    source: int
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    value_bytes: int


class Partition(NamedTuple):
    """The partition of service-messages that belongs to a shard.

    Attributes:
        number: The number of the partition.
        partitions: The number of partitions.
    """

    number: int
    partitions: int

    def has(self, key: bytes) -> bool:
        """Returns whether records with a key belong to the partition."""
        return murmur2(key, self.partitions) == self.number


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


class Times(NamedTuple):
    """The times of a batch, by the clock of Kafka's brokers, which stamp the records.

    Attributes:
        broker_ms: The time of the newest record.
        tick_ms: The time of the newest tick, which all shards read; None: the batch has no tick.
        read_ms: The instant up to which earlier batches have read all messages and statements of the partition;
            NEVER_MS: not known. After a downtime it is the time of the oldest unread record, not the present.
    """

    broker_ms: int
    tick_ms: int | None
    read_ms: int


def times_of(records: Sequence[Sequence[Record]], batch_ms: int) -> Times:
    """Returns the times of a batch.

    Args:
        records: The records of the batch, as `by_source` returns them.
        batch_ms: The batch's timestamp, which counts if there are no records.
    """
    broker_ms = max((each[-1].timestamp_ms for each in records if each), default=batch_ms)
    ticks = records[RouterSource.TICKS]
    if not ticks:
        return Times(broker_ms, None, NEVER_MS)
    said = (records[RouterSource.INCOMING], records[RouterSource.MESSAGES])
    tick_ms = ticks[-1].timestamp_ms
    return Times(broker_ms, tick_ms, min([tick_ms, *(each[0].timestamp_ms for each in said if each)]))


def dead_letter(record: Record, topic: str, reason: str, topics: Topics) -> OutputRow:
    """Returns the dead letter of a command or a report, with its key and value."""
    _, partition, offset, timestamp_ms, key, value, value_bytes = record
    source = SourceRecord(topic, partition, offset, timestamp_ms, key, value, value_bytes)
    return dead_letter_row(source, reason, topics.service_dead_letters)
