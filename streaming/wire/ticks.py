"""The records of queue-ticks. Nearly all are empty: each gives the monitor a batch, and says nothing."""

from typing import Literal

import msgspec
from msgspec import Struct

from streaming.wire.record_decoders import InvalidRecordError, decoder_of


class ReportsLost(Struct):
    """Kafka has deleted reports of arrivals or of receives before the monitor has read them.

    They may have been of any queue: a sender need not put a queue into the partition that other senders choose, and
    the number of partitions may have changed since.
    """

    type: Literal["REPORTS_LOST"]


REPORTS_LOST = msgspec.json.encode(ReportsLost("REPORTS_LOST"))

_decode = decoder_of(ReportsLost)


def says_that_reports_are_lost(value: bytes | None) -> bool:
    """Returns whether a tick is a record ReportsLost."""
    try:
        _decode(value)
    except InvalidRecordError:
        return False
    return True
