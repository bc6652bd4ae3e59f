"""Says which of the known names a user may have meant by one that is not known."""

from collections.abc import Iterable
from difflib import get_close_matches

# The most names that are named.
_MOST = 3


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns the question, after a blank, if names that are known begin with a name, or one is similar; else nothing.

    Args:
        name: The name that is not known.
        known: Those that are.
    """
    names = sorted(known)
    near = [each for each in names if name and each.casefold().startswith(name.casefold())]
    near = near[:_MOST] or get_close_matches(name, names, 1)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
