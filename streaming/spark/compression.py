"""Bytes that are compressed and know how long they were, which Arrow's codecs must be told.

A shard's state is in this form in a checkpoint; blocks of records only pass through it.
"""

import msgspec
import pyarrow as pa

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[int, memoryview])


def compress(whole: bytes | pa.Buffer, codec: pa.Codec) -> bytes:
    """Compresses with the codec."""
    return _encoder.encode((len(whole), codec.compress(whole, asbytes=True)))


def decompress(stored: bytes, codec: pa.Codec) -> pa.Buffer:
    """What `compress` was given."""
    length, compressed = _decoder.decode(stored)
    return codec.decompress(compressed, length)
