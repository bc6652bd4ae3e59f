"""Suggests the known names that a user may have meant by an unknown name."""

from collections.abc import Iterable
from difflib import get_close_matches

# The most names in a question.
_MOST = 3


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns a question with the known names that begin with a name or resemble it; empty if there are none.

    Args:
        name: The unknown name.
        known: The known names.
    """
    names = sorted(known)
    near = [each for each in names if name and each.casefold().startswith(name.casefold())]
    near = near[:_MOST] or get_close_matches(name, names, 1)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
