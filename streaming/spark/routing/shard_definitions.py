"""The definitions in a shard's state. Every shard has a copy, but a worker decodes a change only once.

All shards take the same commands in the same batch. The first shard of a worker applies the commands, and all other
shards of the worker get its result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from streaming.core.routing import snapshot
from streaming.core.routing.databases import Changes
from streaming.core.routing.definition_rules import RefusedDefinitionError
from streaming.core.routing.definitions import Definitions
from streaming.spark.compression import compress, decompress
from streaming.spark.routing.shard_records import Record
from streaming.wire.record_decoders import InvalidRecordError
from streaming.wire.service_commands import decode

_codec = pa.Codec("zstd", 1)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode


@dataclass(frozen=True, slots=True)
class Advanced:
    """Definitions after a batch's commands.

    Attributes:
        definitions: The definitions. Shards share them, so the caller must not change them.
        stored: The definitions as bytes, as the state keeps them.
        stored_ms: The `now_ms` of the definitions as bytes.
        changes: The changes by this batch's commands and by routes that have expired.
        refused: The commands that were refused, with the reasons.
    """

    definitions: Definitions
    stored: bytes
    stored_ms: int
    changes: Changes
    refused: list[tuple[Record, str]]


def advance(stored: bytes, commands: Sequence[Record], tick_ms: int | None) -> Advanced:
    """Takes definitions to a batch: expires routes, and applies the batch's commands in order.

    Args:
        stored: The definitions as the state keeps them; empty for a new instance.
        commands: The commands.
        tick_ms: The timestamp of the batch's newest tick; None: the batch has no tick, and no route expires.
    """
    # No lock: Spark's workers have one thread for this, and the object is replaced as a whole.
    global _latest  # noqa: PLW0603
    known = (stored, tuple(commands), tick_ms)
    if _latest is not None and _latest[0] == known:
        return _latest[1]
    definitions = _open(stored)
    stored_ms = definitions.now_ms
    # From here on, the definitions in memory no longer belong to the last result.
    _latest = None
    version = definitions.version
    if tick_ms is not None:
        definitions.advance(tick_ms)
    refused = [(command, reason) for command in commands if (reason := _apply(definitions, command)) is not None]
    if not stored or definitions.version != version:
        stored, stored_ms = compress(_encode(snapshot.take(definitions)), _codec), definitions.now_ms
    result = Advanced(definitions, stored, stored_ms, definitions.take_changes(), refused)
    _latest = known, result
    return result


_latest: tuple[tuple[bytes, tuple[Record, ...], int | None], Advanced] | None = None


def opened(stored: bytes) -> Definitions:
    """Returns the definitions from the bytes that the state keeps; without bytes, empty definitions."""
    return snapshot.restore(_decode(decompress(stored, _codec))) if stored else Definitions()


def _open(stored: bytes) -> Definitions:
    """Returns the definitions of the state, from the memory of this worker if the bytes are the same."""
    if not stored:
        return Definitions.of_new_instance()
    if _latest is None or _latest[1].stored != stored:
        return opened(stored)
    found = _latest[1].definitions
    # A later batch may have moved the instant without a change. A batch that is done again needs the earlier instant.
    found.now_ms = _latest[1].stored_ms
    return found


def _apply(definitions: Definitions, record: Record) -> str | None:
    """Applies a command. Returns the reason if it is refused."""
    if record.value is not None and record.value_bytes > len(record.value):
        return f"the record has {record.value_bytes} bytes, which is too long"
    try:
        decode(record.key, record.value).apply(definitions, record.timestamp_ms)
    except InvalidRecordError as error:
        return str(error)
    except RefusedDefinitionError as error:
        return error.reason_and_number
    return None
