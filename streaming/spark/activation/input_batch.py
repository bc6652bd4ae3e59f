"""The input of one batch of a shard: its records in the order of application, decoded queue by queue."""

from collections.abc import Container, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.core.activation.events import Event, GroupObserved, MessageArrived, Receive
from streaming.spark.activation.sources import Source
from streaming.spark.blocks import runs_of
from streaming.wire import input_records
from streaming.wire.dead_letters import SourceRecord
from streaming.wire.record_decoders import Decoder
from streaming.wire.ticks import says_that_reports_are_lost
from streaming.wire.topics import Topics

_Integers: TypeAlias = npt.NDArray[np.int64]
# Enough for timestamps up to the year 4199. In 64 bits, this leaves room for 2^17 partitions.
_TIMESTAMP_BITS = 46

_DECODERS: dict[int, Decoder[Any]] = {
    Source.COMMANDS: input_records.commands_decoder,
    Source.ARRIVALS: input_records.arrivals_decoder,
    Source.RECEIVES: input_records.receives_decoder,
}
_DECODE = {source: decoder.decode for source, decoder in _DECODERS.items()}
_ARRIVALS = Source.ARRIVALS.value


def order_of(batch: pa.Table) -> _Integers:
    """Returns the positions of a batch's records in the order in which they are applied.

    Records of one partition are in the order of their offsets. Partitions are merged by the highest timestamp so far in
    each partition, then by the rank of the topic, then by the partition's number (docs/architecture.md, "Order within a
    batch").

    Args:
        batch: The records, with the schema blocks.RECORDS, in any order.
    """
    # Topic and partition as one number, which orders by rank and then by partition.
    place = batch.column("source").to_numpy().astype(np.int64) << 32 | batch.column("partition").to_numpy()
    offsets = batch.column("offset").to_numpy()
    # One task reads a partition, and its blocks usually arrive in order. Then this sort is enough.
    by_place = np.argsort(place, kind="stable")
    place = place[by_place]
    is_first = np.ones(len(place), dtype=bool)
    is_first[1:] = place[1:] != place[:-1]
    if not np.all(is_first[1:] | (np.diff(offsets[by_place]) > 0)):
        by_place = by_place[np.lexsort((offsets[by_place], place))]
    # The highest timestamp so far in each partition. Each partition's timestamps are lifted above the timestamps of all
    # previous partitions, so that one running maximum is enough for all partitions.
    lift = np.cumsum(is_first) << _TIMESTAMP_BITS
    clipped = np.clip(batch.column("timestamp_ms").to_numpy()[by_place], 0, (1 << _TIMESTAMP_BITS) - 1)
    highest_ms = np.maximum.accumulate(clipped + lift) - lift
    return by_place[np.argsort(highest_ms, kind="stable")]  # stable: equal timestamps keep their order


@dataclass(slots=True)
class QueueInput:
    """The records of one key, in order.

    Attributes:
        key: The key of the records.
        sources: The source of each record.
        values: The value of each record, possibly cut.
        timestamps_ms: The timestamp of each record, in the shard's time.
        batch: The batch that has the records.
        positions: The position of each record in the batch.
        is_plain: Whether each record of the batch has a key and a value that is UTF-8 and certainly not too long.
    """

    key: bytes | None
    sources: list[int]
    values: list[Any]
    timestamps_ms: list[int]
    batch: pa.Table
    positions: _Integers
    is_plain: bool

    def decode(self) -> tuple[str | None, list[Event], dict[int, str]]:
        """Checks and decodes the records.

        Returns:
            The queue, or None if no record is valid; its events; and the reason for each record that breaks the
            contract, by the record's number.
        """
        if self.is_plain:
            with suppress(msgspec.MsgspecError, RecursionError, UnicodeDecodeError, input_records.InvalidRecordError):
                return *self._decode_plain(), {}
        return self._decode_one_by_one()

    def _decode_plain(self) -> tuple[str, list[Event]]:
        """Returns the queue and its events. If a record is invalid, raises an error that does not name the record."""
        queue = (self.key or b"").decode()
        if not input_records.is_queue_name(queue):
            raise input_records.InvalidRecordError
        found: list[input_records.InputRecord]
        if self.sources.count(_ARRIVALS) == len(self.sources):
            found = list(map(input_records.arrivals_decoder.decode, self.values))
            # The usual case in a backlog. A comparison takes a fifth of the time of a look at each record.
            if found.count(input_records.MessageArrived(queue)) == len(found):
                return queue, [MessageArrived(len(found))]
        else:
            found = [_DECODE[source](value) for source, value in zip(self.sources, self.values, strict=True)]
        if [record.queue for record in found].count(queue) != len(found):
            raise input_records.InvalidRecordError
        return queue, events_of(found, self.timestamps_ms)

    def _decode_one_by_one(self) -> tuple[str | None, list[Event], dict[int, str]]:
        found: list[input_records.InputRecord] = []
        timestamps_ms: list[int] = []
        wrong: dict[int, str] = {}
        lengths = self.batch.column("value_bytes").take(self.positions).to_pylist()
        rows = zip(self.sources, self.values, lengths, self.timestamps_ms, strict=True)
        for number, (source, value, value_bytes, timestamp_ms) in enumerate(rows):
            try:
                found.append(input_records.decode(_DECODERS[source], self.key, value, value_bytes))
                timestamps_ms.append(timestamp_ms)
            except input_records.InvalidRecordError as error:
                wrong[number] = str(error)
        return found[0].queue if found else None, events_of(found, timestamps_ms), wrong

    def numbers_of(self, events: list[Event], wrong: Container[int]) -> dict[int, list[int]]:
        """Returns id(event) -> the numbers of the records from which `events_of` has made the event."""
        valid = [number for number in range(len(self.sources)) if number not in wrong]
        runs = groupby(valid, lambda number: number if self.sources[number] != Source.ARRIVALS else None)
        return {id(event): list(run) for event, (_, run) in zip(events, runs, strict=True)}

    def origin(self, number: int, topics: Topics) -> SourceRecord:
        """Returns one of the records as it arrived, with its topic, partition and offset."""
        row = self.batch.slice(self.positions[number], 1).to_pylist()[0]
        topic = topic_of(row.pop("source"), topics)
        return SourceRecord(topic, **row)


def events_of(found: list[input_records.InputRecord], timestamps_ms: list[int]) -> list[Event]:
    """Returns the events of a queue's records. Arrivals without another event between them become one event."""
    events: list[Event] = []
    arrived = 0
    for record, timestamp_ms in zip(found, timestamps_ms, strict=True):
        if type(record) is input_records.MessageArrived:
            arrived += record.count
            continue
        if arrived:
            events.append(MessageArrived(arrived))
            arrived = 0
        event = record.event()
        if type(event) is Receive or type(event) is GroupObserved:
            event.reported_ms = timestamp_ms
        events.append(event)
    if arrived:
        events.append(MessageArrived(arrived))
    return events


def topic_of(source: int, topics: Topics) -> str:
    """Returns the name of the topic from which a record came."""
    return (topics.commands, topics.arrivals, topics.receives, topics.ticks)[source]


def without_ticks(batch: pa.Table) -> tuple[pa.Table, bool]:
    """Returns a batch without its ticks, and whether a tick says that reports are lost."""
    is_tick = pc.equal(batch.column("source"), Source.TICKS.value)
    if not pc.any(is_tick).as_py():
        return batch, False
    values = batch.filter(is_tick).column("value").to_pylist()
    return batch.filter(pc.invert(is_tick)), any(map(says_that_reports_are_lost, values))


def keys_of(batch: pa.Table) -> pa.DictionaryArray:
    """Returns the keys of a batch's records. The dictionary has each key once."""
    return batch.column("key").dictionary_encode("encode").combine_chunks()


def by_key(batch: pa.Table, keys: pa.DictionaryArray, ahead_ms: int = 0) -> Iterator[QueueInput]:
    """Yields the records of a batch in order, key by key. The keys have the order of their first records.

    Args:
        batch: The records, with the schema blocks.RECORDS.
        keys: The keys of the records, by `keys_of`.
        ahead_ms: How far the shard's clock is ahead of the wall clock.
    """
    if not len(batch):
        return
    order = order_of(batch)
    codes = keys.indices.to_numpy()[order]
    if len(keys.dictionary) < np.iinfo(np.int16).max:
        codes = codes.astype(np.int16)  # NumPy sorts 16 bits by radix
    grouped = np.argsort(codes, kind="stable")
    codes = codes[grouped]
    positions = order[grouped]
    names = keys.dictionary.to_pylist()
    is_plain = _is_plain(batch)
    sources = batch.column("source").to_numpy()[positions].tolist()
    timestamps_ms = (batch.column("timestamp_ms").to_numpy()[positions] + ahead_ms).tolist()
    # The values are put in order before they are decoded, so that the values of a queue are adjacent in memory. All
    # values together may be too long for 32-bit offsets.
    values = batch.column("value").cast(pa.large_binary()).combine_chunks().take(pa.array(positions)).to_pylist()
    for begin, end in sorted(runs_of(codes), key=lambda run: grouped[run[0]]):
        yield QueueInput(
            names[codes[begin]],
            sources[begin:end],
            values[begin:end],
            timestamps_ms[begin:end],
            batch,
            positions[begin:end],
            is_plain,
        )


def _is_plain(batch: pa.Table) -> bool:
    """Returns whether each record has a key and a value that is UTF-8 and certainly not too long.

    Checks all values of a chunk as one text. This is enough, because a valid value begins with a whole character.
    """
    values = batch.column("value")
    if values.null_count or batch.column("key").null_count:
        return False
    if pc.max(batch.column("value_bytes")).as_py() > input_records.SURELY_SHORT_BYTES:
        return False
    try:
        for chunk in values.chunks:
            text = chunk.buffers()[2]
            if text is not None and not (found := text.to_pybytes()).isascii():
                found.decode()
    except UnicodeDecodeError:
        return False
    return True
