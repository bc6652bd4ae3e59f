"""The hash by which a conversation picks one of several equal destinations (R5)."""

from hashlib import blake2b

_BYTES = 8


def stable_hash(*texts: str | None) -> bytes:
    """Returns a hash of texts that is the same in every process and version; it tells None from an empty text.

    The destination with the highest hash is picked (rendezvous hashing). So load spreads, a conversation keeps its
    choice, and a new destination takes few conversations away from the others.
    """
    # Names have no control characters.
    data = "\x00".join(["\x01" if text is None else text for text in texts])
    return blake2b(data.encode(), digest_size=_BYTES).digest()
