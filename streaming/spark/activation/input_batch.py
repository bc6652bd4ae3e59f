"""The input of one batch of a shard: its records in the order in which they are applied, decoded queue by queue."""

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

from streaming.core.activation.events import Event, MessageArrived
from streaming.spark.activation.output_rows import SourceRecord
from streaming.spark.activation.sources import Source
from streaming.spark.blocks import runs_of
from streaming.wire import input_records
from streaming.wire.decoding import Decoder
from streaming.wire.topics import Topics

_Integers: TypeAlias = npt.NDArray[np.int64]
# Enough for the year 4199, and for 2^17 partitions beside it in 64 bits.
_TIMESTAMP_BITS = 46

_DECODERS: dict[int, Decoder[Any]] = {
    Source.COMMANDS: input_records.commands_decoder,
    Source.ARRIVALS: input_records.arrivals_decoder,
    Source.RECEIVES: input_records.receives_decoder,
}
_DECODE = {source: decoder.decode for source, decoder in _DECODERS.items()}
_ARRIVALS = Source.ARRIVALS.value


def order_of(batch: pa.Table) -> _Integers:
    """The positions of a batch's records in the order in which they are applied.

    Records of one partition go by offset; partitions are merged by the highest timestamp seen so far in each, then by
    the rank of their topic, then by partition number (activation.md, "Order").

    Args:
        batch: The records, by blocks.RECORDS, in no order.
    """
    # Topic and partition as one number: its order is that of the ranks, and then that of the partitions.
    place = batch.column("source").to_numpy().astype(np.int64) << 32 | batch.column("partition").to_numpy()
    offsets = batch.column("offset").to_numpy()
    # One task reads a partition, and mostly its blocks come one behind the other: then this is all.
    by_place = np.argsort(place, kind="stable")
    place = place[by_place]
    is_first = np.ones(len(place), dtype=bool)
    is_first[1:] = place[1:] != place[:-1]
    if not np.all(is_first[1:] | (np.diff(offsets[by_place]) > 0)):
        by_place = by_place[np.lexsort((offsets[by_place], place))]
    # The highest so far within each partition: each partition's timestamps are lifted above all those before it.
    lift = np.cumsum(is_first) << _TIMESTAMP_BITS
    clipped = np.clip(batch.column("timestamp_ms").to_numpy()[by_place], 0, (1 << _TIMESTAMP_BITS) - 1)
    highest_ms = np.maximum.accumulate(clipped + lift) - lift
    return by_place[np.argsort(highest_ms, kind="stable")]  # what is equal keeps its order


@dataclass(slots=True)
class QueueInput:
    """The records of one key, in order.

    Attributes:
        key: The records' key.
        sources: Their sources.
        values: Their values, possibly cut.
        batch: The batch.
        positions: Their positions in it.
        is_plain: Whether none of them lacks its key or value, is too long, or is no UTF-8.
    """

    key: bytes | None
    sources: list[int]
    values: list[Any]
    batch: pa.Table
    positions: _Integers
    is_plain: bool

    def decode(self) -> tuple[str | None, list[Event], dict[int, str]]:
        """Checks and decodes the records.

        Returns:
            The queue, None if no record is valid; its events; and what is wrong with each record that breaks the
            contract, by its number.
        """
        if self.is_plain:
            with suppress(msgspec.MsgspecError, RecursionError, UnicodeDecodeError, input_records.InvalidRecordError):
                return *self._decode_plain(), {}
        return self._decode_one_by_one()

    def _decode_plain(self) -> tuple[str, list[Event]]:
        """The queue and its events; raises something, without saying which record is wrong, unless all are valid."""
        queue = (self.key or b"").decode()
        if not input_records.is_queue_name(queue):
            raise input_records.InvalidRecordError
        found: list[input_records.InputRecord]
        if self.sources.count(_ARRIVALS) == len(self.sources):
            found = list(map(input_records.arrivals_decoder.decode, self.values))
            # As nearly all of a backlog are: to compare them takes a fifth of the time of looking into each.
            if found.count(input_records.MessageArrived(queue)) == len(found):
                return queue, [MessageArrived(len(found))]
        else:
            found = [_DECODE[source](value) for source, value in zip(self.sources, self.values, strict=True)]
        if [record.queue for record in found].count(queue) != len(found):
            raise input_records.InvalidRecordError
        return queue, events_of(found)

    def _decode_one_by_one(self) -> tuple[str | None, list[Event], dict[int, str]]:
        found: list[input_records.InputRecord] = []
        wrong: dict[int, str] = {}
        lengths = self.batch.column("value_bytes").take(self.positions).to_pylist()
        rows = zip(self.sources, self.values, lengths, strict=True)
        for number, (source, value, value_bytes) in enumerate(rows):
            try:
                found.append(input_records.decode(_DECODERS[source], self.key, value, value_bytes))
            except input_records.InvalidRecordError as error:
                wrong[number] = str(error)
        return found[0].queue if found else None, events_of(found), wrong

    def numbers_of(self, events: list[Event], wrong: Container[int]) -> dict[int, list[int]]:
        """The numbers of the records that each event is made of, by the event's identity; `events_of` backwards."""
        valid = [number for number in range(len(self.sources)) if number not in wrong]
        runs = groupby(valid, lambda number: number if self.sources[number] != Source.ARRIVALS else None)
        return {id(event): list(run) for event, (_, run) in zip(events, runs, strict=True)}

    def origin(self, number: int, topics: Topics) -> SourceRecord:
        """One of the records as it came, and where it came from."""
        row = self.batch.slice(self.positions[number], 1).to_pylist()[0]
        topic = topic_of(row.pop("source"), topics)
        return SourceRecord(topic, **row)


def events_of(found: list[input_records.InputRecord]) -> list[Event]:
    """The events of a queue's records; arrivals without another event between them are one arrival of them all."""
    events: list[Event] = []
    arrived = 0
    for record in found:
        if type(record) is input_records.MessageArrived:
            arrived += record.count
            continue
        if arrived:
            events.append(MessageArrived(arrived))
            arrived = 0
        events.append(record.event())
    if arrived:
        events.append(MessageArrived(arrived))
    return events


def topic_of(source: int, topics: Topics) -> str:
    """The name of the topic that a record came from."""
    return (topics.commands, topics.arrivals, topics.receives, topics.ticks)[source]


def keys_of(batch: pa.Table) -> pa.DictionaryArray:
    """The keys of a batch's records, each of them once in its dictionary."""
    return batch.column("key").dictionary_encode("encode").combine_chunks()


def by_key(batch: pa.Table, keys: pa.DictionaryArray) -> Iterator[QueueInput]:
    """The records of a batch in order, key by key; the key whose first record comes first is the first.

    Args:
        batch: The records, by blocks.RECORDS.
        keys: Their keys, by `keys_of`.
    """
    if not len(batch):
        return
    order = order_of(batch)
    codes = keys.indices.to_numpy()[order]
    if len(keys.dictionary) < np.iinfo(np.int16).max:
        codes = codes.astype(np.int16)  # which NumPy sorts by radix
    grouped = np.argsort(codes, kind="stable")
    codes = codes[grouped]
    positions = order[grouped]
    names = keys.dictionary.to_pylist()
    is_plain = _is_plain(batch)
    sources = batch.column("source").to_numpy()[positions].tolist()
    # Put in order first: then a queue's values lie side by side in memory when they are decoded. All of them in one
    # piece may be longer than 32 bits can say.
    values = batch.column("value").cast(pa.large_binary()).combine_chunks().take(pa.array(positions)).to_pylist()
    for begin, end in sorted(runs_of(codes), key=lambda run: grouped[run[0]]):
        yield QueueInput(
            names[codes[begin]], sources[begin:end], values[begin:end], batch, positions[begin:end], is_plain
        )


def _is_plain(batch: pa.Table) -> bool:
    """Whether no record lacks its key or value, may be too long, or is no UTF-8.

    All values are looked at as one text: a valid one begins with a character of its own, whatever stands before it.
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
