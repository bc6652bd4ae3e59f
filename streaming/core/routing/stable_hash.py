"""The hash by which a conversation picks one of several equal destinations (R5)."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Generic, TypeVar

T = TypeVar("T")

_BYTES = 8


def stable_hash(*texts: str | None) -> bytes:
    """Returns a hash of texts that is the same in every process and version. None and an empty text differ.

    The destination with the highest hash is picked (rendezvous hashing). So load spreads, a conversation keeps its
    choice, and a new destination takes few conversations away from the other destinations.
    """
    return blake2b(_joined(texts), digest_size=_BYTES).digest()


class Spread(Generic[T]):
    """Equal destinations, over which conversations spread.

    There may be thousands of destinations. So each destination's part of the hash is prepared once. The choice of the
    last conversation is kept, because a batch decides about most messages more than once.
    """

    def __init__(self, destinations: Iterable[tuple[T, tuple[str | None, ...]]]) -> None:
        """Prepares destinations, each with the texts that are hashed for it after the conversation's identifier."""
        found = [*destinations]
        self._destinations = [destination for destination, _ in found]
        self._texts = [_joined(("", *texts)) for _, texts in found]
        self._last: tuple[str, T] | None = None

    def first(self, conversation_id: str) -> T:
        """Returns the destination that a conversation picks."""
        if len(self._destinations) == 1:
            return self._destinations[0]
        if self._last is None or self._last[0] != conversation_id:
            hashes = self._hashes(conversation_id)
            self._last = conversation_id, self._destinations[hashes.index(max(hashes))]
        return self._last[1]

    def others(self, conversation_id: str) -> list[T]:
        """Returns the other destinations, in the order in which the conversation would pick them."""
        hashes = self._hashes(conversation_id)
        order = sorted(range(len(hashes)), key=hashes.__getitem__, reverse=True)
        return [self._destinations[index] for index in order[1:]]

    def _hashes(self, conversation_id: str) -> list[bytes]:
        """Returns `stable_hash` of the conversation and the texts, for each destination."""
        begun = blake2b(conversation_id.encode(), digest_size=_BYTES)
        hashes = []
        for text in self._texts:
            whole = begun.copy()
            whole.update(text)
            hashes.append(whole.digest())
        return hashes


def _joined(texts: Iterable[str | None]) -> bytes:
    # Names have no control characters.
    return "\x00".join(["\x01" if text is None else text for text in texts]).encode()
