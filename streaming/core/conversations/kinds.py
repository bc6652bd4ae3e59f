"""The kinds and the sources of messages, by the names that records have for them.

This module is compiled, unlike decisions.py, because compiled code compares members of a compiled class much faster.
"""

from enum import StrEnum


class Kind(StrEnum):
    """The kind of a message in a queue, or between instances. A checkpoint stores a kind's position in this list."""

    MESSAGE = "MESSAGE"
    END = "END"
    ERROR = "ERROR"
    TIMER = "TIMER"
    ACK = "ACK"  # an acknowledgement that travels alone; only between instances


class Source(StrEnum):
    """The topic of a message: service-messages or service-incoming."""

    MESSAGES = "MESSAGES"
    INCOMING = "INCOMING"
