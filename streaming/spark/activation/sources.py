"""The sources of the activation query."""

from enum import IntEnum


class Source(IntEnum):
    """The source of a record. The value is its rank among records of one timestamp (`input_batch.order_of`)."""

    COMMANDS = 0
    ARRIVALS = 1
    RECEIVES = 2
    TICKS = 3
