"""The file with which a restored router begins its new checkpoint: states, offsets, and conversations that have to end.

The router writes the file before the first batch, so that each try of that batch has the same result. It deletes the
file once Spark has the state of every shard.
"""

import base64
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from streaming.errors import UserError
from streaming.spark import checkpoint_files
from streaming.spark.routing.shard_state import RestoredShard
from streaming.system import hints

_FILE_NAME = "queue-activation.restored"


class Restoration(Struct):
    """The beginning of a restored router.

    Attributes:
        generation: The generation of the new checkpoint.
        offsets: Topic, with the prefix -> partition -> the first offset to read. Other topics are read from the start.
        shards: The values with which the shards begin, in the order of the partitions.
    """

    generation: int
    offsets: dict[str, dict[str, int]]
    shards: list[RestoredShard]

    def by_key(self, shard_keys: Sequence[int]) -> Mapping[int, RestoredShard]:
        """Returns the values with which each shard begins, by its Spark key."""
        return dict(zip(shard_keys, self.shards, strict=True))


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Restoration)


def save(spark: SparkSession, location: str, restoration: Restoration) -> None:
    """Writes the file. Call it only when no other router can be writing to the checkpoint."""
    path, file_system = checkpoint_files.open_path(spark, location, _FILE_NAME)
    file_system.delete(path, False)
    content = base64.b64encode(_encoder.encode(restoration))
    checkpoint_files.write(file_system, path, path.suffix(".new"), content)


def read(spark: SparkSession, location: str) -> Restoration | None:
    """Returns the content of the file; None if there is none.

    Raises:
        UserError: The file is damaged.
    """
    path, file_system = checkpoint_files.open_path(spark, location, _FILE_NAME)
    if not file_system.exists(path):
        return None
    try:
        return _decoder.decode(base64.b64decode(checkpoint_files.read(spark, file_system, path)))
    except (msgspec.DecodeError, ValueError):
        raise UserError(
            f"The checkpoint {location} is damaged: {_FILE_NAME} is corrupt. Restore the router again, with another "
            f"{hints.option('--checkpoint-location')}."
        ) from None


def end(spark: SparkSession, location: str, shards: int, query: StreamingQuery) -> bool:
    """Deletes the file once Spark has the state of every shard, and returns whether the file was deleted."""
    progress = query.lastProgress
    if progress is None or progress["stateOperators"][0]["numRowsTotal"] < shards:
        return False
    path, file_system = checkpoint_files.open_path(spark, location, _FILE_NAME)
    file_system.delete(path, False)
    return True
