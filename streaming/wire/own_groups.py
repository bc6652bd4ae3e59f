"""The consumer groups of this project's own programs, whatever the topic prefix before them.

These programs are not queue readers. So the views of all groups, and the patterns of the activator's file, leave out
these groups.
"""

_PROGRAMS = ("activator", "host", "monitor", "observer", "router", "transport")


def own_group(program: str) -> str:
    """Returns the consumer group of all programs of a kind. The caller puts the topic prefix before it."""
    return f"queue-activation-{program}"


_ENDS = tuple(map(own_group, _PROGRAMS))


def is_own_group(name: str) -> bool:
    """Returns whether a consumer group has the default name for a group of this project's programs."""
    return name.endswith(_ENDS)
