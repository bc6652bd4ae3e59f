"""Compressed bytes together with their original length, which Arrow's codecs need to decompress them.

A checkpoint keeps the state of shards in this form. Blocks of records have this form only in transit.
"""

import msgspec
import pyarrow as pa

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[int, memoryview])


def compress(whole: bytes | pa.Buffer, codec: pa.Codec) -> bytes:
    """Returns the bytes, compressed with the codec, and their original length."""
    return _encoder.encode((len(whole), codec.compress(whole, asbytes=True)))


def decompress(stored: bytes, codec: pa.Codec) -> pa.Buffer:
    """Returns the bytes that `compress` was given."""
    length, compressed = _decoder.decode(stored)
    return codec.decompress(compressed, length)
