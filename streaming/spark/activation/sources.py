"""Where the records of the activation query come from."""

from enum import IntEnum


class Source(IntEnum):
    """Where a record came from; the value is its rank among records of one timestamp (activation.md, "Order")."""

    COMMANDS = 0
    ARRIVALS = 1
    RECEIVES = 2
    TICKS = 3
