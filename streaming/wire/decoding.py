"""Decodes records that anybody may have written, so that none of them ends a program.

Every program decodes what it reads from Kafka here, whatever the topic: msgspec alone raises errors of four kinds.
"""

import time
from collections.abc import Callable
from typing import Annotated, Generic, Protocol, TypeVar

import msgspec
from confluent_kafka import Message
from msgspec import Meta

# No integer of ours is longer, and a database or another language could not take one that is.
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

# A flood of such records must not fill the disk with lines about them.
MAX_TOLD = 100
TOLD_INTERVAL_S = 60.0
_MAX_REASON_LENGTH = 300

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class InvalidRecordError(ValueError):
    """A record that breaks the contract; the message is the reason."""


class Decoder(Protocol[T_co]):
    """What decodes a value; raises what msgspec's decoders raise."""

    def decode(self, value: bytes | str, /) -> T_co:
        """Decodes a value."""
        ...


def decode_json(decoder: Decoder[T], value: bytes | None) -> T:
    """Decodes and checks a record's value.

    Raises:
        InvalidRecordError: It is missing, no UTF-8, no JSON, nested too deeply, or not what the decoder wants.
    """
    if value is None:
        raise InvalidRecordError("the record has no value")
    try:
        if not value.isascii():
            value.decode()  # the decoder does not look into strings it ignores
        return decoder.decode(value)
    except UnicodeDecodeError as error:
        raise InvalidRecordError(f"invalid UTF-8: {error}") from None
    except msgspec.ValidationError as error:
        raise InvalidRecordError(str(error)) from None
    except msgspec.DecodeError as error:
        raise InvalidRecordError(f"invalid JSON: {error}") from None
    except RecursionError:
        raise InvalidRecordError("invalid JSON: nested too deeply") from None


class RecordDecoder(Generic[T]):
    """Decodes the records of a topic, and passes over those that cannot be decoded.

    It counts them, and tells of each once, unless there are too many. One that is read again is neither counted nor
    told again.

    Attributes:
        passed_over: How many there were.
    """

    def __init__(self, wanted: str, decode: Callable[[Message], T], say: Callable[[str], None]) -> None:
        """Starts to count.

        Args:
            wanted: What a record of the topic should be, such as `notification`.
            decode: Decodes a record; raises InvalidRecordError.
            say: Is told of what is passed over, MAX_TOLD lines in TOLD_INTERVAL_S at most.
        """
        self.passed_over = 0
        self._wanted = wanted
        self._decode = decode
        self._say = say
        self._untold = 0
        self._told = 0
        self._interval_end_s = 0.0
        # The last one's offset in each partition.
        self._last: dict[int | None, int] = {}

    def decode(self, message: Message) -> T | None:
        """Returns what a record says; None if it is passed over."""
        try:
            return self._decode(message)
        except InvalidRecordError as error:
            self._pass_over(message, str(error))
            return None

    def _pass_over(self, message: Message, reason: str) -> None:
        offset = message.offset() or 0
        if offset <= self._last.get(message.partition(), -1):
            return
        self._last[message.partition()] = offset
        self.passed_over += 1
        now_s = time.monotonic()
        if now_s >= self._interval_end_s:
            self._interval_end_s, self._told = now_s + TOLD_INTERVAL_S, 0
        if self._told >= MAX_TOLD:
            self._untold += 1
            return
        self._told += 1
        untold, self._untold = self._untold, 0
        more = f" (and {untold} before it, of which nothing was said)" if untold else ""
        place = f"record {offset} of {message.topic()}[{message.partition()}]"
        self._say(f"{place} is no {self._wanted}: {reason[:_MAX_REASON_LENGTH]}{more}")
