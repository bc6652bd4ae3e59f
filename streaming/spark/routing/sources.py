"""The sources of the router's records."""

from enum import IntEnum


class RouterSource(IntEnum):
    """The source of a record. A shard takes the records of a batch in the order of these values."""

    COMMANDS = 0
    REPORTS = 1
    TICKS = 2
    INCOMING = 3
    MESSAGES = 4
