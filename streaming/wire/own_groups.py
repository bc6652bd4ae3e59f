"""The consumer groups of this project's own programs, whatever the topic prefix before them.

They are no readers: neither a view of all groups nor a pattern of the activator's file means them.
"""

_PROGRAMS = ("activator", "host", "monitor", "observer", "router", "transport")
_ENDS = tuple(f"queue-activation-{program}" for program in _PROGRAMS)


def is_own_group(name: str) -> bool:
    """Returns whether a consumer group is that of one of our programs, which may have another one by an option."""
    return name.endswith(_ENDS)
