"""The records of queue-ticks. Nearly all are empty: they only make the monitor run a batch."""

from typing import Literal

import msgspec
from msgspec import Struct

from streaming.wire.record_decoders import InvalidRecordError, decoder_of


class ReportsLost(Struct):
    """Kafka deleted reports of arrivals or of receives before the monitor read them.

    The reports may concern any queue: senders may choose different partitions for a queue, and the number of partitions
    may have changed since.
    """

    type: Literal["REPORTS_LOST"]


REPORTS_LOST = msgspec.json.encode(ReportsLost("REPORTS_LOST"))

_decode = decoder_of(ReportsLost)


def says_that_reports_are_lost(value: bytes | None) -> bool:
    """Returns whether the value of a tick is a ReportsLost."""
    try:
        _decode(value)
    except InvalidRecordError:
        return False
    return True
