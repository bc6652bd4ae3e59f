"""Finds misspelt fields of commands: if ignored, they would make a definition silently differ from the intention."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from itertools import islice

import msgspec

# The similarity to a known field's name, from 0 to 1, from which an unknown field counts as misspelt: `procedure` does
# (0.783), `queue_id` does not (0.769).
_MISSPELT = 0.78
# The most unknown fields that are compared, because each comparison costs time.
_MAX_COMPARED = 50


def refuse_misspelt(fields: Iterable[str], known: Collection[str], inner: Collection[str] = ()) -> None:
    """Refuses unknown fields of a command that look misspelt.

    Args:
        fields: The fields that the command has.
        known: The fields that it may have.
        inner: The fields of its `activation`.

    Raises:
        msgspec.ValidationError: A field looks misspelt; the message says which field was probably meant.
    """
    for field in islice((field for field in fields if field not in known), _MAX_COMPARED):
        if field in inner:
            raise msgspec.ValidationError(f"unknown field `{field}`: it belongs in `activation`")
        for meant in get_close_matches(field.lower(), [*known, *inner], 1, _MISSPELT):
            # A known name with one more word, such as `notification_id`, is a different name.
            if f"_{meant}_" not in f"_{field}_":
                raise msgspec.ValidationError(f"unknown field `{field}`: did you mean `{meant}`?")
