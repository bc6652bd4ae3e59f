"""The monitor's sign of life: the text beside the offset of queue-ticks that the monitor's group has committed."""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from streaming.wire.record_decoders import decoder_of

# 9999-12-31, the last day that a time of Python can have.
_LAST_MS = 253_402_214_400_000


class SignOfLife(Struct, frozen=True):
    """The time at which a program last committed a batch.

    Attributes:
        committed_ms: The time, in milliseconds since 1970.
        next_within_ms: The next batch is committed within this time, even if nothing happens.
    """

    committed_ms: Annotated[int, Meta(ge=0, le=_LAST_MS)]
    next_within_ms: Annotated[int, Meta(ge=1, le=_LAST_MS)]


_decode = decoder_of(SignOfLife)


def encode_sign(sign: SignOfLife) -> str:
    """Returns the sign's text."""
    return msgspec.json.encode(sign).decode()


def decode_sign(text: str) -> SignOfLife:
    """Decodes the text of a sign; raises InvalidRecordError."""
    return _decode(text.encode())
