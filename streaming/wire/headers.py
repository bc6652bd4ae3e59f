"""The headers of a record, as Kafka's client returns them."""

from operator import methodcaller
from typing import cast

from confluent_kafka import Message

from streaming.wire.record_decoders import InvalidRecordError

Headers = list[tuple[str, bytes | None]]

# For a name that is not UTF-8, confluent-kafka returns a list with a null pointer and leaves the exception set. Python
# checks for that where C calls a method, but not in a specialized call of its interpreter (3.11 and newer), so that
# `message.headers()` in a loop raises the exception from an unrelated statement later.
_read_headers = methodcaller("headers")


def decoded_headers(message: Message) -> Headers:
    """Returns a record's headers.

    Raises:
        InvalidRecordError: The name of a header is not UTF-8. Kafka accepts such names, and not all clients check them.
    """
    try:
        # The type stub of confluent-kafka is wider than the results for records that were read.
        return cast("Headers | None", _read_headers(message)) or []
    except (UnicodeDecodeError, SystemError) as error:
        raise InvalidRecordError(f"its headers cannot be decoded: {error.__cause__ or error}") from None
