"""Mirrored routes: the principal of the database to which a route with two addresses leads.

Before a mirrored route is used, both addresses are asked for their roles. Messages go to the address that has the
principal; if both addresses have a principal, to the principal with the higher epoch. A principal with a lower epoch
than the last known principal is outdated and gets nothing. While no address has the principal, nothing is sent, and
both addresses are asked again every 10 s. Both are also asked when the principal cannot be reached.

If the principal does not acknowledge messages in time, it is asked again for its role. Every 5 minutes at most, the
other address is asked too. It may have a new principal, about which an old principal without a router learns nothing.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from streaming.core.routing.conversation import Pair
from streaming.core.routing.databases import PRINCIPAL
from streaming.core.times import FOREVER_MS, NEVER_MS

ASK_AGAIN_MS = 10_000
# Well above the longest time after which a message is sent again, 64 s.
ASK_PARTNER_AGAIN_MS = 300_000

# The role that an address has reported, and the epoch of the role; None: the address cannot be asked.
Answer = tuple[str | None, int]

_NO_ANSWER: Answer = (None, 0)


@dataclass(slots=True)
class _Knowledge:
    """The knowledge about a pair.

    Attributes:
        answers: The last answers of the address and of its mirror.
        asked_ms: The instant at which an address was asked last.
        is_awaited: Whether messages wait for a principal.
        believed: The epoch of the last principal.
        doubted_ms: The instant at which both addresses were asked last although the principal was known.
    """

    answers: list[Answer] = field(default_factory=lambda: [_NO_ANSWER, _NO_ANSWER])
    asked_ms: int = NEVER_MS
    is_awaited: bool = False
    believed: int = 0
    doubted_ms: int = NEVER_MS

    def principal(self) -> int | None:
        """Returns the index of the principal; None: no address has the principal."""
        found = [
            index for index, (role, epoch) in enumerate(self.answers) if role == PRINCIPAL and epoch >= self.believed
        ]
        return max(found, key=lambda index: (self.answers[index][1], -index), default=None)

    def believe(self) -> None:
        """Notes the epoch of the principal."""
        index = self.principal()
        if index is not None:
            self.believed = self.answers[index][1]


Snapshot = list[tuple[Pair, list[Answer], int, bool, int, int]]


class Mirrors:
    """The mirrored pairs that a shard has used. All instants are of the shard's clock."""

    def __init__(self, snapshot: Iterable[Sequence[Any]] = ()) -> None:
        """Restores pairs from the result of `snapshot`, which may have lists instead of tuples."""
        self._known: dict[Pair, _Knowledge] = {}
        # Address -> broker instance -> the pairs with both, in the order of their first use.
        self._by_address: dict[str, dict[str, dict[Pair, None]]] = {}
        for pair, answers, asked_ms, is_awaited, *later in snapshot:
            instance, address, mirror = pair
            found: list[Answer] = [(answer[0], answer[1]) for answer in answers]
            # The first versions had neither the epoch of the last principal nor the instant of the last doubt.
            known = self._add((instance, address, mirror), _Knowledge(found, asked_ms, is_awaited, *later))
            known.believe()

    def __bool__(self) -> bool:
        """Returns whether a mirrored pair has been used."""
        return bool(self._known)

    def snapshot(self) -> Snapshot:
        """Returns the pairs as plain values."""
        return [
            (pair, known.answers, known.asked_ms, known.is_awaited, known.believed, known.doubted_ms)
            for pair, known in sorted(self._known.items(), key=itemgetter(0))
        ]

    def principal(self, pair: Pair) -> str | None:
        """Returns the address of the principal; None if it is not known, so that messages wait for a principal."""
        known = self._know(pair)
        index = known.principal()
        known.is_awaited = index is None
        return None if index is None else pair[1 + index]

    def wait(self, pair: Pair) -> None:
        """Notes that messages wait for another principal, because they cannot go to the known principal."""
        self._know(pair).is_awaited = True

    def ask(self, pair: Pair, now_ms: int) -> Pair | None:
        """Returns the pair to ask, because its principal is not known or does not answer, and notes the instant.

        Returns None if the pair was asked a moment ago. If only the known principal is to be asked, both addresses of
        the returned pair are its address.
        """
        known = self._know(pair)
        if now_ms < known.asked_ms + ASK_AGAIN_MS:
            return None
        known.asked_ms = now_ms
        index = known.principal()
        if index is None:
            return pair
        if now_ms >= known.doubted_ms + ASK_PARTNER_AGAIN_MS:
            known.doubted_ms = now_ms
            return pair
        return pair[0], pair[1 + index], pair[1 + index]

    def take_answer(self, instance: str, address: str, answer: Answer) -> list[Pair]:
        """Takes the answer of an address about a broker instance.

        Returns the pairs that have another principal now. Pairs that had a principal before may be asked at once.
        """
        return self._change(self._by_address.get(address, {}).get(instance, ()), address, answer)

    def lose(self, address: str) -> list[Pair]:
        """Forgets the answers of an address that cannot be reached.

        Returns the pairs that have another principal now. They may be asked at once.
        """
        found = [pair for pairs in self._by_address.get(address, {}).values() for pair in pairs]
        return self._change(found, address, _NO_ANSWER)

    def due(self, now_ms: int) -> list[Pair]:
        """Returns the pairs that are to be asked again, because messages wait for a principal."""
        return [
            pair for pair, known in self._known.items() if known.is_awaited and now_ms >= known.asked_ms + ASK_AGAIN_MS
        ]

    def rest(self, pair: Pair) -> None:
        """Notes that no message waits for a principal of the pair any more."""
        self._known[pair].is_awaited = False

    def next_ms(self) -> int:
        """Returns the earliest instant at which a pair is due."""
        awaited = (known.asked_ms + ASK_AGAIN_MS for known in self._known.values() if known.is_awaited)
        return min(awaited, default=FOREVER_MS)

    def keep_only(self, pairs: Collection[Pair]) -> None:
        """Forgets the pairs that no route names any more."""
        for pair in [pair for pair in self._known if pair not in pairs]:
            del self._known[pair]
            for address in pair[1:]:
                del self._by_address[address][pair[0]][pair]

    def _know(self, pair: Pair) -> _Knowledge:
        """Returns the knowledge about a pair. Adds a new pair."""
        known = self._known.get(pair)
        return self._add(pair, _Knowledge()) if known is None else known

    def _add(self, pair: Pair, known: _Knowledge) -> _Knowledge:
        self._known[pair] = known
        for address in pair[1:]:
            self._by_address.setdefault(address, {}).setdefault(pair[0], {})[pair] = None
        return known

    def _change(self, pairs: Iterable[Pair], address: str, answer: Answer) -> list[Pair]:
        changed = []
        for pair in pairs:
            known = self._known[pair]
            before = known.principal()
            known.answers[pair.index(address, 1) - 1] = answer
            known.believe()
            if known.principal() != before:
                changed.append(pair)
                if before is not None:
                    known.asked_ms = NEVER_MS
        return changed
