"""The state of a router's shard between two batches, and the row that Spark keeps of it."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Struct

from streaming.core.conversations.mirrors import Mirrors
from streaming.core.conversations.questions import Questions
from streaming.core.conversations.snapshot import FORMAT_VERSION
from streaming.core.conversations.suspects import Suspect
from streaming.core.times import Clock
from streaming.spark.routing.clean_up import CleanUpState

# The version is snapshot.FORMAT_VERSION. `definitions` and `conversations` are compressed. `head` is the small rest of
# the state, as msgpack.
STATE_SCHEMA = (
    "format_version int, clock_ms long, batch_ms long, wake_ms long, head binary, definitions binary, "
    "conversations binary"
)
StateRow = tuple[int, int, int, int, bytes, bytes, bytes]

# Without addresses, questions, mirrors, round trip and open questions.
_LATER: list[Any] = [(), (), (), 0, ()]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode


class RestoredShard(Struct):
    """State, ends and suspects with which a shard begins in the new checkpoint of a restored router.

    Attributes:
        state: The state of the older checkpoint, with the schema STATE_SCHEMA; None: the state is lost.
        ends: The offsets of service-messages and service-incoming up to which the last router had read.
        suspects: The conversations that have to end, because they may have gone on after the state was saved.
    """

    state: StateRow | None
    ends: tuple[int, int]
    suspects: list[Suspect]


@dataclass(slots=True)
class ShardState:
    """The state of a shard between two batches.

    Attributes:
        clock: The shard's clock.
        definitions: The definitions, as stored.
        conversations: The conversations, as stored.
        number: The number of the last decision record.
        ends: The offsets of service-messages and service-incoming up to which the shard has read.
        held: The number of messages that the shard holds.
        clean_up: The state of cleaning up.
        away: Address of another instance -> the instant until which it counts as not reachable.
        questions: The questions to the configuration service.
        mirrors: The mirrored routes that have been used.
        round_trip_ms: The smoothed time from sending to another instance until that instance's acknowledgement.
    """

    clock: Clock
    definitions: bytes = b""
    conversations: bytes = b""
    number: int = 0
    ends: list[int] = field(default_factory=lambda: [0, 0])
    held: int = 0
    clean_up: CleanUpState = field(default_factory=CleanUpState)
    away: dict[str, int] = field(default_factory=dict)
    questions: Questions = field(default_factory=Questions)
    mirrors: Mirrors = field(default_factory=Mirrors)
    round_trip_ms: int = 0

    @staticmethod
    def of(stored: StateRow) -> "ShardState":
        """Returns the state of a row."""
        _, clock_ms, batch_ms, _, head, definitions, conversations = stored
        number, ends, held, batches, samples, done, *later = _decode(head)
        # Format 1 has no addresses, and format 2 nothing after them. The first routers have stored a list of addresses.
        away, questions, mirrors, round_trip_ms, open_questions = [*later, *_LATER[len(later) :]]
        return ShardState(
            Clock(clock_ms, batch_ms),
            definitions,
            conversations,
            number,
            ends,
            held,
            CleanUpState(batches, samples, done),
            away if isinstance(away, dict) else dict.fromkeys(away, clock_ms),
            Questions(questions, open_questions),
            Mirrors(mirrors),
            round_trip_ms,
        )

    @staticmethod
    def restored(beginning: RestoredShard, batch_ms: int) -> "ShardState":
        """Returns a restored state. Definitions are read again, and the numbers of decisions begin again at 1."""
        state = ShardState(Clock(batch_ms, batch_ms)) if beginning.state is None else ShardState.of(beginning.state)
        state.definitions, state.number, state.ends = b"", 0, [*beginning.ends]
        state.questions, state.mirrors = Questions(), Mirrors()
        return state

    def row(self, wake_ms: int) -> StateRow:
        """Returns the row of the state, with the shard's wake-up."""
        clean, questions = self.clean_up, self.questions
        cleaned = clean.batches, clean.samples, clean.done
        away = dict(sorted(self.away.items()))
        later = away, questions.snapshot(), self.mirrors.snapshot(), self.round_trip_ms, questions.open()
        head = _encode([self.number, self.ends, self.held, *cleaned, *later])
        clock = self.clock
        return FORMAT_VERSION, clock.now_ms, clock.batch_ms, wake_ms, head, self.definitions, self.conversations


def number_of(stored: StateRow) -> int:
    """Returns the number of a shard's last decision record."""
    return int(_decode(stored[4])[0])
