"""The consumer groups of this project's own programs, whatever the topic prefix before them.

They are no readers: neither a view of all groups nor a pattern of the activator's file means them.
"""

_PROGRAMS = ("activator", "host", "monitor", "observer", "router", "transport")


def own_group(program: str) -> str:
    """Returns the consumer group of all programs of a kind; the topic prefix is put before it."""
    return f"queue-activation-{program}"


_ENDS = tuple(map(own_group, _PROGRAMS))


def is_own_group(name: str) -> bool:
    """Returns whether a consumer group is that of one of our programs, which may have another one by an option."""
    return name.endswith(_ENDS)
