"""A table of a shard's state as bytes. A checkpoint keeps the state of shards in this form.

The texts of a column are stored as their lengths and one joined text. These compress far better than Arrow's offsets.
"""

from collections import deque
from collections.abc import Mapping
from types import MappingProxyType

import msgspec
import numpy as np
import pyarrow as pa

from streaming.spark.compression import compress, decompress

_NOTHING: Mapping[str, int] = MappingProxyType({})
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[memoryview])


def pack_columns(table: pa.RecordBatch, codec: pa.Codec) -> bytes:
    """Returns a table as compressed bytes, and an empty table as no bytes.

    Args:
        table: The table, with columns of binary or int64.
        codec: Compresses the bytes.
    """
    if not len(table):
        return b""
    buffers: list[memoryview] = []
    for column in table.columns:
        if pa.types.is_binary(column.type):
            buffers += _lengths_and_text(column)
        else:
            buffers.append(column.to_numpy().data)
    return compress(_encoder.encode(buffers), codec)


def unpack_columns(
    stored: bytes, schema: pa.Schema, codec: pa.Codec, added: Mapping[str, int] = _NOTHING
) -> pa.RecordBatch:
    """Returns the table from which `pack_columns` has made the bytes.

    Args:
        stored: The compressed bytes.
        schema: The table's schema.
        codec: Decompresses the bytes.
        added: The last columns, which older versions did not store: name -> the value for all rows of an older table.
    """
    if not stored:
        return pa.RecordBatch.from_pylist([], schema)
    buffers = deque(_decoder.decode(decompress(stored, codec)))
    columns: list[pa.Array] = []
    for field in schema:
        if pa.types.is_binary(field.type):
            columns.append(_texts(buffers.popleft(), buffers.popleft()))
        elif buffers:
            # Copied to an address that Arrow may compute with.
            columns.append(pa.array(np.frombuffer(buffers.popleft(), np.int64).copy()))
        else:
            columns.append(pa.array(np.full(len(columns[0]), added[field.name])))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _lengths_and_text(column: pa.BinaryArray) -> tuple[memoryview, memoryview]:
    _, offsets, text = column.buffers()
    offsets = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return np.diff(offsets).data, memoryview(text)[offsets[0] : offsets[-1]]


def _texts(lengths: memoryview, text: memoryview) -> pa.BinaryArray:
    offsets = np.concatenate(([0], np.cumsum(np.frombuffer(lengths, np.int32)))).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
