"""Takes a shard of the router, which is a partition of service-messages with its conversations, through a batch."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from streaming.core.conversations.mirrors import Mirrors
from streaming.core.conversations.questions import Questions
from streaming.core.conversations.restoring import Suspect
from streaming.core.conversations.snapshot import FORMAT_VERSION
from streaming.core.times import Clock
from streaming.spark.format_versions import refuse_newer_state
from streaming.spark.routing.clean_up import CleanUpState
from streaming.spark.routing.conversation_store import ConversationStore
from streaming.spark.routing.shard_settings import RouterShardSettings
from streaming.spark.routing.sources import RouterSource
from streaming.spark.routing.step_shard import RouterShard, step_shard
from streaming.spark.shard_worker import TakenShard, left_alone

# The version is snapshot.FORMAT_VERSION. `head` is the small rest of the state, as msgpack; `definitions` and
# `conversations` are compressed.
STATE_SCHEMA = (
    "format_version int, clock_ms long, batch_ms long, wake_ms long, head binary, definitions binary, "
    "conversations binary"
)
StateRow = tuple[int, int, int, int, bytes, bytes, bytes]


class RestoredShard(NamedTuple):
    """The beginning of a shard in the new checkpoint of a restored router.

    Attributes:
        state: The state of the older checkpoint, by STATE_SCHEMA; None: it is lost.
        ends: The offsets of service-messages and service-incoming up to which the last router had read.
        suspects: The conversations that have to end, since they may have gone on after the state was saved.
    """

    state: StateRow | None
    ends: tuple[int, int]
    suspects: Sequence[Suspect]


# Without addresses, questions, mirrors, round trip and open questions.
_LATER: list[Any] = [(), (), (), 0, ()]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode


def run_shard(  # noqa: PLR0913, PLR0917  (the parts of a batch)
    kept: tuple[object, ...] | None,
    batch: pa.Table,
    batch_ms: int,
    settings: RouterShardSettings,
    partition: int,
    restored: RestoredShard | None = None,
) -> TakenShard:
    """Takes one shard through one batch.

    Args:
        kept: Its state, by STATE_SCHEMA; None if Spark has none.
        batch: Its records, by blocks.RECORDS, in no order.
        batch_ms: The batch's timestamp.
        settings: The settings.
        partition: The partition of service-messages that it is.
        restored: The beginning of the shard if Spark has no state of it.

    Raises:
        UnknownFormatError: The checkpoint was written by a newer version.
    """
    if kept is None:
        shard = RouterShard(Clock(batch_ms, batch_ms)) if restored is None else _begin(restored, batch_ms)
    else:
        stored = cast("StateRow", kept)
        refuse_newer_state(stored[0], FORMAT_VERSION)
        # In an older format, conversations may be due that were not by the rules of then.
        is_older = stored[0] < FORMAT_VERSION
        alone = None if is_older or _has_news(batch) else left_alone(stored, batch_ms)
        if alone is not None:
            return alone
        shard = _open(stored)
    shard.clock.advance(batch_ms)
    rows = step_shard(shard, batch, settings, partition)
    row, wake_ms = _close(shard)
    return TakenShard(rows, row, wake_ms - shard.clock.now_ms, shard.done)


def _has_news(batch: pa.Table) -> bool:
    """Returns whether a batch has records other than ticks."""
    return bool(pc.any(pc.not_equal(batch.column("source"), RouterSource.TICKS.value)).as_py())


def _begin(restored: RestoredShard, batch_ms: int) -> RouterShard:
    """Returns a restored shard. Its definitions are read again, and the numbers of its decisions begin again."""
    shard = RouterShard(Clock(batch_ms, batch_ms)) if restored.state is None else _open(restored.state)
    shard.definitions, shard.number, shard.ends = b"", 0, [*restored.ends]
    shard.suspects = restored.suspects
    shard.questions, shard.mirrors = Questions(), Mirrors()
    return shard


def number_of(stored: StateRow) -> int:
    """Returns the number of a shard's last decision record."""
    return int(_decode(stored[4])[0])


def _open(stored: StateRow) -> RouterShard:
    _, clock_ms, batch_ms, _, head, definitions, conversations = stored
    number, ends, held, batches, samples, done, *later = _decode(head)
    # Format 1 has no addresses, and format 2 only these. The first routers have stored only which are away.
    away, questions, mirrors, round_trip_ms, open_questions = [*later, *_LATER[len(later) :]]
    return RouterShard(
        Clock(clock_ms, batch_ms),
        definitions,
        ConversationStore(conversations),
        number,
        ends,
        held,
        CleanUpState(batches, samples, done),
        away=away if isinstance(away, dict) else dict.fromkeys(away, clock_ms),
        questions=Questions(questions, open_questions),
        mirrors=Mirrors(mirrors),
        round_trip_ms=round_trip_ms,
    )


def _close(shard: RouterShard) -> tuple[StateRow, int]:
    """Returns the state, and the shard's wake-up."""
    wake_ms = min(shard.wake_ms, shard.next_expiry_ms)
    clean = shard.clean_up
    cleaned = clean.batches, clean.samples, clean.done
    away = dict(sorted(shard.away.items()))
    questions = shard.questions
    later = away, questions.snapshot(), shard.mirrors.snapshot(), shard.round_trip_ms, questions.open()
    head = _encode([shard.number, shard.ends, shard.held, *cleaned, *later])
    row = (
        FORMAT_VERSION,
        shard.clock.now_ms,
        shard.clock.batch_ms,
        wake_ms,
        head,
        shard.definitions,
        shard.packed,
    )
    return row, wake_ms
