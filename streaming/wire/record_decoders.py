"""Decodes untrusted records, so that no invalid record ends a program.

All programs decode all records from Kafka here, because msgspec itself raises four kinds of errors.
"""

import re
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Generic, Protocol, TypeVar

import msgspec
from confluent_kafka import Message
from msgspec import Meta

# Our integers fit into 64 bits. A database or another language could not hold longer ones.
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

# The most log lines per interval, so that a flood of invalid records does not fill the disk with its log lines.
MAX_TOLD = 100
TOLD_INTERVAL_S = 60.0
_MAX_REASON_LENGTH = 300

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class InvalidRecordError(ValueError):
    """A record that breaks the contract. The message is the reason."""


class Decoder(Protocol[T_co]):
    """A decoder of values; it raises the same errors as msgspec's decoders."""

    def decode(self, value: bytes | str, /) -> T_co:
        """Decodes a value."""
        ...


def decode_json(decoder: Decoder[T], value: bytes | None) -> T:
    """Decodes and checks a record's value.

    Raises:
        InvalidRecordError: The value is missing, is not UTF-8 or JSON, is nested too deeply, or fails the decoder's
            checks.
    """
    if value is None:
        raise InvalidRecordError("the record has no value")
    try:
        if not value.isascii():
            value.decode()  # the decoder does not check strings that it ignores
        return decoder.decode(value)
    except UnicodeDecodeError as error:
        raise InvalidRecordError(f"invalid UTF-8: {error}") from None
    except msgspec.ValidationError as error:
        raise InvalidRecordError(str(error)) from None
    except msgspec.DecodeError as error:
        raise InvalidRecordError(f"invalid JSON: {error}") from None
    except RecursionError:
        raise InvalidRecordError("invalid JSON: nested too deeply") from None


def by_field(error: msgspec.ValidationError | InvalidRecordError) -> str:
    """Returns the reason with the field before it. msgspec puts the path of the field in the record behind it."""
    reason, at, path = str(error).rpartition(" - at `$.")
    return f"{path.removesuffix('`')}: {reason}" if at else str(error)


def record_type(class_name: str) -> str:
    """Returns the `type` of a record by the name of its class: MESSAGE_ARRIVED for MessageArrived."""
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", class_name).upper()


def decoder_of(record: type[T]) -> Callable[[bytes | None], T]:
    """Returns a function that decodes the values of a record as `decode_json` does."""
    return partial(decode_json, msgspec.json.Decoder(record))


class RecordDecoder(Generic[T]):
    """Decodes the records of a topic, and skips invalid records.

    It counts each invalid record and logs it, up to MAX_TOLD lines in TOLD_INTERVAL_S. A record that is read again is
    neither counted nor logged again.

    Attributes:
        passed_over: The number of invalid records.
    """

    def __init__(self, wanted: str, decode: Callable[[Message], T], say: Callable[[str], None]) -> None:
        """Starts the count at 0.

        Args:
            wanted: The name of a valid record of the topic, such as `notification`.
            decode: Decodes a record; raises InvalidRecordError.
            say: Logs a line about an invalid record.
        """
        self.passed_over = 0
        self._wanted = wanted
        self._decode = decode
        self._say = say
        self._untold = 0
        self._told = 0
        self._interval_end_s = 0.0
        # The last invalid record's offset in each partition.
        self._last: dict[int | None, int] = {}

    def decode(self, message: Message) -> T | None:
        """Returns the decoded record, or None if it is invalid."""
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
        more = f" (and {untold} before it that were not logged)" if untold else ""
        place = f"record {offset} of {message.topic()}[{message.partition()}]"
        self._say(f"{place} is not a valid {self._wanted}: {reason[:_MAX_REASON_LENGTH]}{more}")
