"""Compressed bytes with their original length. Arrow's codecs need the length to decompress the bytes.

A checkpoint keeps the state of shards in this form. Blocks of records have this form only in transit.
"""

import msgspec
import pyarrow as pa

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[int, memoryview])


def compress(whole: bytes | pa.Buffer, codec: pa.Codec) -> bytes:
    """Returns the original length and the compressed bytes, in one value."""
    return _encoder.encode((len(whole), codec.compress(whole, asbytes=True)))


def decompress(stored: bytes, codec: pa.Codec) -> pa.Buffer:
    """Returns the original bytes of a value from `compress`."""
    length, compressed = _decoder.decode(stored)
    return codec.decompress(compressed, length)
