"""The conversations of a shard, in memory and as the single value that Spark keeps of them.

The value is compressed columns. A batch *takes up* only the conversations that it touches: it makes Python objects of
them. All other conversations stay in the columns. Comparisons of numbers in the columns find the conversations that are
due, or that a changed definition concerns.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.core.conversations import snapshot
from streaming.core.conversations.conversation import INITIATOR, TARGET, Conversation
from streaming.core.conversations.due_work import again_ms, wake_ms
from streaming.core.conversations.kinds import Source
from streaming.core.conversations.settings import ConversationSettings
from streaming.core.routing.databases import Changes
from streaming.core.routing.stable_hash import stable_hash
from streaming.core.times import FOREVER_MS
from streaming.spark.columns import pack_columns, unpack_columns

# The value in the columns of offsets if a conversation refers to no record. It is higher than any offset.
NO_OFFSET = 10**15

# wake_ms: the instant of the shard's clock at which the conversation is due; 0: at once.
# due_ms: the instant of the brokers' clock at which its lifetime is over or a timer is due.
# again_ms: the instant of the shard's clock of the next look at its held messages.
# held_to_...: the hash of the service for which messages are held; 0: no message is held.
# ..._service: the hash of an endpoint's database and service.
# address: the hash of the address to which messages without acknowledgement were sent.
# is_incoming: 1 if another instance began the conversation.
COLUMNS = pa.schema(
    [
        ("conversation_id", pa.binary()),
        ("wake_ms", pa.int64()),
        ("lowest_offset", pa.int64()),
        ("held_to_initiator", pa.int64()),
        ("held_to_target", pa.int64()),
        ("initiator_service", pa.int64()),
        ("target_service", pa.int64()),
        ("snapshot", pa.binary()),
        ("lowest_incoming", pa.int64()),
        ("address", pa.int64()),
        ("is_incoming", pa.int64()),
        ("due_ms", pa.int64()),
        ("again_ms", pa.int64()),
    ]
)
# The columns that older routers do not write. Their `wake_ms` also covers lifetimes, timers and held messages.
_ADDED = {"lowest_incoming": NO_OFFSET, "address": 0, "is_incoming": 0, "due_ms": FOREVER_MS, "again_ms": 0}
_NONE = pa.RecordBatch.from_pylist([], COLUMNS)
_codec = pa.Codec("zstd", 1)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode


class _Instants:
    """The columns with the instants at which a conversation is due."""

    def __init__(self, wake_ms: int, due_ms: int, again_ms: int) -> None:
        self.wake_ms, self.due_ms, self.again_ms = wake_ms, due_ms, again_ms


# The part of a conversation that the views show, for the initiator and for the target: the numbers of held messages,
# and the instants at which the held messages are tried again.
Shown = tuple[tuple[int, int], tuple[int | None, int | None]]


class ConversationStore:
    """The conversations of a shard.

    Attributes:
        taken: Id -> conversation that was taken up as a Python object.
        shown: Id of a conversation that was taken up -> its part in the views at that time.
    """

    def __init__(self, stored: bytes = b"") -> None:
        """Opens the bytes that `pack` has returned. Without bytes, there are no conversations."""
        self._resting = unpack_columns(stored, COLUMNS, _codec, _ADDED) if stored else _NONE
        # Id -> instants of a conversation when it was taken up.
        self._instants: dict[str, _Instants] = {}
        # Ids of conversations that are due by `wake_ms` and have not been looked at.
        self._due: set[str] = set()
        self._looked_at: set[str] = set()
        self.taken: dict[str, Conversation] = {}
        self.shown: dict[str, Shown] = {}

    def __len__(self) -> int:
        return len(self._resting) + len(self.taken)

    def mark(self, changes: Changes) -> None:
        """Makes due the conversations that changed definitions concern."""
        if not changes or not len(self._resting):
            return
        held = [self._numbers("held_to_initiator"), self._numbers("held_to_target")]
        if changes.is_all:
            is_due = (held[0] != 0) | (held[1] != 0)
        else:
            routed = _hashes((name,) for name in changes.routed)
            is_due = np.isin(held[0], routed) | np.isin(held[1], routed)
        services = _hashes(changes.services)
        for column in ("initiator_service", "target_service"):
            is_due |= np.isin(self._numbers(column), services)
        wakes = np.where(is_due, 0, self._numbers("wake_ms"))
        self._resting = self._resting.set_column(1, COLUMNS.field("wake_ms"), pa.array(wakes))

    def held_of(self, services: Collection[str]) -> set[str]:
        """Returns the services for which conversations that are not taken up hold messages."""
        hashes = _hashes((name,) for name in services)
        columns = self._numbers("held_to_initiator"), self._numbers("held_to_target")
        held = {found for column in columns for found in column[np.isin(column, hashes)].tolist()}
        return {name for name in services if _hash((name,)) in held}

    @property
    def incoming(self) -> int:
        """Returns the number of conversations that other instances have begun."""
        resting = pc.sum(self._resting.column("is_incoming")).as_py() or 0
        return int(resting) + sum(each.is_incoming() for each in self.taken.values())

    def take_up_sent_to(self, addresses: Iterable[str]) -> list[Conversation]:
        """Takes up and returns the conversations with unacknowledged messages to these addresses."""
        wanted = set(addresses)
        if not wanted:
            return []
        hashes = _hashes((address,) for address in sorted(wanted))
        self._take_up(pa.array(np.isin(self._numbers("address"), hashes)))
        return [each for each in self.taken.values() if each.far is not None and each.far.address in wanted]

    def take_up(self, ids: Iterable[str]) -> None:
        """Takes up the conversations with these ids."""
        wanted = pa.array({each.encode() for each in ids} if len(self._resting) else [], pa.binary())
        if len(wanted):
            self._take_up(pc.is_in(self._resting.column("conversation_id"), value_set=wanted))

    def take_up_due(self, now_ms: int, read_ms: int, limit: int) -> list[Conversation]:
        """Takes up the conversations that are due, and then those whose held messages are due, up to a limit.

        The conversations that have been due longest come first; of conversations that became due together, those with
        the oldest messages. Conversations that are not `looked_at` stay due.

        Args:
            now_ms: The instant of the shard's clock, which is compared with `wake_ms` and `again_ms`.
            read_ms: The instant of the brokers' clock, which is compared with `due_ms`.
            limit: The most conversations.
        """
        left_ms = np.minimum(self._numbers("wake_ms") - now_ms, self._numbers("due_ms") - read_ms)
        due = self._take_up_first(left_ms, limit, lambda at: min(at.wake_ms - now_ms, at.due_ms - read_ms))
        self._due = {name for name, at in self._instants.items() if at.wake_ms <= now_ms}
        found = due[:limit]
        if len(found) < limit:
            names = {each.conversation_id for each in due}
            again = self._take_up_first(self._numbers("again_ms") - now_ms, limit, lambda at: at.again_ms - now_ms)
            found += [each for each in again if each.conversation_id not in names][: limit - len(found)]
        return found

    def _take_up_first(
        self, resting_ms: npt.NDArray[np.int64], limit: int, left_ms: Callable[[_Instants], int]
    ) -> list[Conversation]:
        """Takes up due conversations. Returns them and the due conversations that were taken up before, in order.

        Args:
            resting_ms: The time until each conversation that is not taken up is due.
            limit: The most conversations to take up.
            left_ms: Returns the time until a conversation that was taken up is due.
        """
        due = np.flatnonzero(resting_ms <= 0)
        if len(due) > limit:
            due = due[np.lexsort((self._numbers("lowest_offset")[due], resting_ms[due]))][:limit]
        if len(due):
            is_taken = np.zeros(len(resting_ms), dtype=bool)
            is_taken[due] = True
            self._take_up(pa.array(is_taken))
        left = {name: left_ms(at) for name, at in self._instants.items() if name in self.taken}
        found = [self.taken[name] for name, each in left.items() if each <= 0]
        found.sort(key=lambda each: (left[each.conversation_id], _lowest(each, Source.MESSAGES), each.conversation_id))
        return found

    def _take_up(self, is_taken: pa.BooleanArray) -> None:
        found = self._resting.filter(is_taken)
        if not len(found):
            return
        self._resting = self._resting.filter(pc.invert(is_taken))
        columns = (found.column(name).to_pylist() for name in ("wake_ms", "due_ms", "again_ms", "snapshot"))
        for wake, due, again, blob in zip(*columns, strict=True):
            conversation = snapshot.restore(_decode(blob))
            name = conversation.conversation_id
            self.taken[name] = conversation
            self._instants[name] = _Instants(wake, due, again)
            self.shown[name] = shown_of(conversation)

    def looked_at(self, conversation: Conversation) -> None:
        """Notes that a conversation that was due has been looked at."""
        self._due.discard(conversation.conversation_id)
        self._looked_at.add(conversation.conversation_id)

    def find(self, conversation_id: str) -> Conversation | None:
        """Takes up a conversation; returns None if there is none."""
        self.take_up([conversation_id])
        return self.taken.get(conversation_id)

    def add(self, conversation: Conversation) -> None:
        """Adds a new conversation."""
        self.taken[conversation.conversation_id] = conversation
        self.shown[conversation.conversation_id] = (0, 0), (None, None)

    def remove(self, conversation: Conversation) -> None:
        """Removes a conversation that was taken up."""
        del self.taken[conversation.conversation_id]

    def pack(self, settings: ConversationSettings, now_ms: int) -> tuple[bytes, tuple[int, int], tuple[int, int]]:
        """Returns the conversations as bytes, and two pairs.

        The first pair is the earliest wake-up by the shard's clock and the earliest `due_ms`. The second pair is the
        lowest offsets of service-messages and service-incoming to which a conversation refers.
        """
        table = self._resting
        if self.taken:
            rows = [self._row(each, settings, now_ms) for each in self.taken.values()]
            columns = zip(zip(*rows, strict=True), COLUMNS, strict=True)
            taken = [pa.array(column, field.type) for column, field in columns]
            table = pa.concat_batches([table, pa.RecordBatch.from_arrays(taken, schema=COLUMNS)])
        if not len(table):
            return b"", (FOREVER_MS, FOREVER_MS), (NO_OFFSET, NO_OFFSET)
        names = "wake_ms", "again_ms", "due_ms", "lowest_offset", "lowest_incoming"
        wake, again, due, *lowest = [int(pc.min(table.column(name)).as_py()) for name in names]
        return pack_columns(table, _codec), (min(wake, again), due), (lowest[0], lowest[1])

    def _row(self, conversation: Conversation, settings: ConversationSettings, now_ms: int) -> tuple[Any, ...]:
        name = conversation.conversation_id
        wake, again = wake_ms(conversation, settings), again_ms(conversation, now_ms)
        before = self._instants.get(name)
        if before is not None and name in self._due:
            wake = before.wake_ms
        if before is not None and name not in self._looked_at and again != FOREVER_MS:
            again = min(again, before.again_ms)
        far, services, directions = conversation.far, conversation.services, conversation.directions
        return (
            name.encode(),
            wake,
            _lowest(conversation, Source.MESSAGES),
            *[_hash((services[side],)) if directions[side].waiting else 0 for side in (INITIATOR, TARGET)],
            *[
                0 if end is None else _hash((end.database, services[side]))
                for side, end in enumerate(conversation.endpoints)
            ],
            _encode(snapshot.take(conversation)),
            _lowest(conversation, Source.INCOMING),
            0 if far is None or not directions[far.side].waiting else _hash((far.address,)),
            int(conversation.is_incoming()),
            conversation.due_ms(),
            again,
        )

    def _numbers(self, column: str) -> npt.NDArray[np.int64]:
        numbers: npt.NDArray[np.int64] = self._resting.column(column).to_numpy(zero_copy_only=False)
        return numbers


def shown_of(conversation: Conversation) -> Shown:
    """Returns the values of a conversation that its views show and whose changes do not set `is_view_stale`."""
    to_initiator, to_target = conversation.directions
    tries = conversation.next_try_ms(INITIATOR), conversation.next_try_ms(TARGET)
    return (len(to_initiator.waiting), len(to_target.waiting)), tries


def _lowest(conversation: Conversation, source: Source) -> int:
    found = conversation.lowest_offset(source)
    return NO_OFFSET if found is None else found


# There are at most 10,000 services, each with and without its database.
@lru_cache(maxsize=20_000)
def _hash(names: tuple[str, ...]) -> int:
    return int.from_bytes(stable_hash(*names), "big", signed=True) or 1


def _hashes(names: Iterable[tuple[str, ...]]) -> npt.NDArray[np.int64]:
    return np.array([_hash(each) for each in names], np.int64)


def views_of(store: ConversationStore) -> Iterator[tuple[Conversation, tuple[int, int]]]:
    """Yields the conversations whose views must be written, with the numbers of messages that they held before."""
    for name, conversation in store.taken.items():
        before = store.shown[name]
        if conversation.is_view_stale or before != shown_of(conversation):
            held, _ = before
            yield conversation, held
