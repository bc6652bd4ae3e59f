"""Mirrored routes: which of a route's two addresses has the principal of its database.

Before a mirrored route is used, both addresses are asked. Messages go to the one that says that it is the principal; of
two, to the one with the higher epoch. One with a lower epoch than the last principal is an old one, which does not know
of the new one yet: it gets nothing. While no address has the principal, nothing is sent, and both are asked again every
10 s. They are also asked when the principal cannot be reached.

When what was sent to the principal is not acknowledged in time, it is asked whether it still is one. The other address
is asked with it every 5 minutes at most: it may have a new principal, of which an old one without a router never hears.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from streaming.core.routing.conversation import Place
from streaming.core.routing.databases import PRINCIPAL
from streaming.core.times import FOREVER_MS, NEVER_MS

ASK_AGAIN_MS = 10_000
# Well above the longest time after which a message is sent again, 64 s.
ASK_PARTNER_AGAIN_MS = 300_000

# The role that an address has reported, and its epoch; no role: it cannot be asked.
Answer = tuple[str | None, int]

_NO_ANSWER: Answer = (None, 0)


@dataclass(slots=True)
class _Pair:
    """The knowledge about a place.

    Attributes:
        answers: The last answers of the address and of its mirror.
        asked_ms: The instant at which they were asked last.
        is_awaited: Whether messages wait for a principal.
        believed: The epoch of the last principal.
        doubted_ms: The instant at which both were asked last although the principal is known.
    """

    answers: list[Answer] = field(default_factory=lambda: [_NO_ANSWER, _NO_ANSWER])
    asked_ms: int = NEVER_MS
    is_awaited: bool = False
    believed: int = 0
    doubted_ms: int = NEVER_MS

    def principal(self) -> int | None:
        """Returns the index of the principal; None: there is none."""
        found = [
            index for index, (role, epoch) in enumerate(self.answers) if role == PRINCIPAL and epoch >= self.believed
        ]
        return max(found, key=lambda index: (self.answers[index][1], -index), default=None)

    def believe(self) -> None:
        """Notes the epoch of the principal."""
        index = self.principal()
        if index is not None:
            self.believed = self.answers[index][1]


Snapshot = list[tuple[Place, list[Answer], int, bool, int, int]]


class Mirrors:
    """The mirrored places that a shard has used. All instants are of the shard's clock."""

    def __init__(self, snapshot: Iterable[Sequence[Any]] = ()) -> None:
        """Restores what `snapshot` has returned, also with lists for tuples; without it, none has been used."""
        self._pairs: dict[Place, _Pair] = {}
        # Address -> broker instance -> the places that have both, in the order in which they were used first.
        self._places: dict[str, dict[str, dict[Place, None]]] = {}
        for place, answers, asked_ms, is_awaited, *later in snapshot:
            instance, address, mirror = place
            found: list[Answer] = [(answer[0], answer[1]) for answer in answers]
            # The first versions had neither the epoch of the last principal nor the instant of the last doubt.
            pair = self._add((instance, address, mirror), _Pair(found, asked_ms, is_awaited, *later))
            pair.believe()

    def __bool__(self) -> bool:
        """Returns whether any has been used."""
        return bool(self._pairs)

    def snapshot(self) -> Snapshot:
        """Returns the places as plain values."""
        return [
            (place, pair.answers, pair.asked_ms, pair.is_awaited, pair.believed, pair.doubted_ms)
            for place, pair in sorted(self._pairs.items(), key=itemgetter(0))
        ]

    def principal(self, place: Place) -> str | None:
        """Returns the address of the principal; None if none is known. Then messages wait for one."""
        pair = self._pair(place)
        index = pair.principal()
        pair.is_awaited = index is None
        return None if index is None else place[1 + index]

    def wait(self, place: Place) -> None:
        """Notes that messages wait for another principal, because they cannot go to the one that is known."""
        self._pair(place).is_awaited = True

    def ask(self, place: Place, now_ms: int) -> Place | None:
        """Notes that a place is to be asked for its principal, because none is known or the known one does not answer.

        Returns the place, if it was not asked a moment ago. If only the known principal is to be asked, both of its
        addresses are that one's.
        """
        pair = self._pair(place)
        if now_ms < pair.asked_ms + ASK_AGAIN_MS:
            return None
        pair.asked_ms = now_ms
        index = pair.principal()
        if index is None:
            return place
        if now_ms >= pair.doubted_ms + ASK_PARTNER_AGAIN_MS:
            pair.doubted_ms = now_ms
            return place
        return place[0], place[1 + index], place[1 + index]

    def take_answer(self, instance: str, address: str, answer: Answer) -> list[Place]:
        """Takes what an address says about a broker instance.

        Returns the places that have another principal now. Those that had one before may be asked at once.
        """
        return self._change(self._places.get(address, {}).get(instance, ()), address, answer)

    def lose(self, address: str) -> list[Place]:
        """Forgets what an address has answered, because it cannot be reached.

        Returns the places that have another principal now. They may be asked at once.
        """
        found = [place for places in self._places.get(address, {}).values() for place in places]
        return self._change(found, address, _NO_ANSWER)

    def due(self, now_ms: int) -> list[Place]:
        """Returns the places that are to be asked again, because messages wait for a principal."""
        return [
            place for place, pair in self._pairs.items() if pair.is_awaited and now_ms >= pair.asked_ms + ASK_AGAIN_MS
        ]

    def rest(self, place: Place) -> None:
        """Notes that no message waits for a principal any more."""
        self._pairs[place].is_awaited = False

    def next_ms(self) -> int:
        """Returns the instant at which a place is due."""
        awaited = (pair.asked_ms + ASK_AGAIN_MS for pair in self._pairs.values() if pair.is_awaited)
        return min(awaited, default=FOREVER_MS)

    def keep_only(self, places: Collection[Place]) -> None:
        """Forgets the places that no route names any more."""
        for place in [place for place in self._pairs if place not in places]:
            del self._pairs[place]
            for address in place[1:]:
                del self._places[address][place[0]][place]

    def _pair(self, place: Place) -> _Pair:
        """Returns the knowledge about a place, also about a new one."""
        pair = self._pairs.get(place)
        return self._add(place, _Pair()) if pair is None else pair

    def _add(self, place: Place, pair: _Pair) -> _Pair:
        self._pairs[place] = pair
        for address in place[1:]:
            self._places.setdefault(address, {}).setdefault(place[0], {})[place] = None
        return pair

    def _change(self, places: Iterable[Place], address: str, answer: Answer) -> list[Place]:
        changed = []
        for place in places:
            pair = self._pairs[place]
            before = pair.principal()
            pair.answers[place.index(address, 1) - 1] = answer
            pair.believe()
            if pair.principal() != before:
                changed.append(place)
                if before is not None:
                    pair.asked_ms = NEVER_MS
        return changed
