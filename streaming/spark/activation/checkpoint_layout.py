"""What the checkpoint fixes besides Spark's own files: how queues are spread over shards, and whose offsets it has."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from msgspec import Struct, structs
from pyspark.sql import SparkSession

from streaming.core.activation.snapshot import FORMAT_VERSION
from streaming.errors import UserError
from streaming.kafka.topic_watch import replaced_topics
from streaming.spark import checkpoint_files
from streaming.spark.session import shuffle_partitions
from streaming.spark.shard_keys import DEFAULT_SHARDS, balanced_keys
from streaming.wire.topics import Topics

_FILE_NAME = "queue-activation.json"


class Layout(Struct):
    """The part of the settings a checkpoint was made with and cannot change.

    Attributes:
        format_version: Version of the state's format when the checkpoint was made.
        shards: Number of shards; a queue's shard follows from it.
        topic_prefix: Prefix of the topics whose offsets the checkpoint holds.
        shard_keys: The Spark key of each shard; None in older checkpoints: the shards' numbers.
        topic_ids: Kafka's id of each topic whose offsets the checkpoint holds; none in older checkpoints.
        continued_from: The checkpoint whose state and offsets this one began with.
        has_tick_source: Whether queue-ticks is a source of its own; Spark's log of offsets is by source. In older
            checkpoints it is one with the receives.
        id: Tells this checkpoint from all others; None in older checkpoints, see `id_of`.
    """

    format_version: int
    shards: int
    topic_prefix: str
    shard_keys: list[int] | None = None
    topic_ids: dict[str, str] = {}
    continued_from: str | None = None
    has_tick_source: bool = False
    id: str | None = None

    @property
    def keys(self) -> list[int]:
        """The Spark key of each shard."""
        return list(range(self.shards)) if self.shard_keys is None else self.shard_keys


@dataclass(frozen=True)
class Wanted:
    """What a monitor is started with, and what its checkpoint may contradict.

    Attributes:
        shards: Number of shards; None: the checkpoint's, or the default.
        topic_prefix: Prefix of the topics.
        topic_ids: Kafka's id of each topic whose offsets a checkpoint holds.
        continue_from: The checkpoint that a new one goes on from; None: it begins with nothing.
    """

    shards: int | None
    topic_prefix: str
    topic_ids: Mapping[str, str]
    continue_from: str | None


def settle(spark: SparkSession, location: str, wanted: Wanted) -> Layout:
    """Returns the layout of the checkpoint at a location; for a new checkpoint the one asked for, not yet written.

    It is read through Hadoop's file system, so that a location on HDFS or an object store works as a local folder does.

    Raises:
        UserError: The checkpoint has another number of shards, another topic prefix or another origin than asked for,
            belongs to topics that are gone, or is damaged; or there is nothing to continue from.
    """
    layout = read_layout(spark, location)
    if layout is None:
        return _new_layout(spark, wanted)
    if wanted.shards is not None and wanted.shards != layout.shards:
        raise UserError(
            f"the checkpoint {location} has {layout.shards} shards, not {wanted.shards}: leave --shards out, or start "
            f"with a new --checkpoint-location and --continue-from {location}"
        )
    _check_topics(layout, location, wanted)
    if wanted.continue_from is not None and wanted.continue_from != layout.continued_from:
        raise UserError(
            f"the checkpoint {location} exists already and did not begin with {wanted.continue_from}: leave "
            "--continue-from out, or start with a new --checkpoint-location"
        )
    return layout


def read_layout(spark: SparkSession, location: str) -> Layout | None:
    """Returns the layout of the checkpoint at a location; None if there is no checkpoint.

    Raises:
        UserError: The checkpoint was written by a newer version, or the layout is damaged.
    """
    path, file_system = checkpoint_files.open_path(spark, location, _FILE_NAME)
    if not file_system.exists(path):
        return None
    layout = decode(checkpoint_files.read(spark, file_system, path), location)
    if layout.format_version > FORMAT_VERSION:
        raise UserError(
            f"the checkpoint {location} is of format {layout.format_version}, this version knows up to "
            f"{FORMAT_VERSION}: start the version that wrote it, or a newer one"
        )
    return layout


def decode(content: bytes, location: str) -> Layout:
    """Returns the layout that the file of a checkpoint holds.

    Raises:
        UserError: It is not whole: a machine that loses its power may keep the name of a file and not the content.
    """
    try:
        return msgspec.json.decode(content, type=Layout)
    except msgspec.DecodeError:
        raise UserError(
            f"the checkpoint {location} is damaged: {_FILE_NAME} is not whole. Put it back from any backup of this "
            "checkpoint: it never changes. If there is none, start with another --checkpoint-location"
        ) from None


def keep(spark: SparkSession, location: str, layout: Layout) -> None:
    """Writes the layout of a new checkpoint; called once no other monitor can be writing one.

    Raises:
        UserError: Another monitor has written a layout there since this one looked.
    """
    found = read_layout(spark, location)
    if found is None:
        path, file_system = checkpoint_files.open_path(spark, location, _FILE_NAME)
        checkpoint_files.write(file_system, path, path.suffix(".new"), msgspec.json.encode(layout))
    elif found != layout:
        raise UserError(f"another monitor has just begun the checkpoint {location}: start again, or choose another one")


def id_of(spark: SparkSession, location: str, layout: Layout) -> str:
    """Returns what tells the checkpoint at a location from all others.

    An older checkpoint has no id in its layout. Spark's id of its query serves as well; nothing need be written. If the
    query was never started either, the location will do until it is.

    Raises:
        UserError: Spark's file of the query is damaged.
    """
    return layout.id or checkpoint_files.query_id(spark, location) or str(uuid.uuid5(uuid.NAMESPACE_URL, location))


def _new_layout(spark: SparkSession, wanted: Wanted) -> Layout:
    default_shards = DEFAULT_SHARDS
    if wanted.continue_from is not None:
        older = read_layout(spark, wanted.continue_from)
        if older is None:
            raise UserError(f"there is no checkpoint of a monitor at {wanted.continue_from}: correct --continue-from")
        # Of the ticks nothing is taken over.
        counted = {
            name: older.topic_ids[name] for name in Topics(older.topic_prefix).counted() if name in older.topic_ids
        }
        _check_topics(structs.replace(older, topic_ids=counted), wanted.continue_from, wanted)
        default_shards = older.shards
    count = wanted.shards or default_shards
    keys = balanced_keys(count, shuffle_partitions(spark))
    return Layout(
        FORMAT_VERSION,
        count,
        wanted.topic_prefix,
        keys,
        dict(wanted.topic_ids),
        wanted.continue_from,
        has_tick_source=True,
        id=str(uuid.uuid4()),
    )


def _check_topics(layout: Layout, location: str, wanted: Wanted) -> None:
    if layout.topic_prefix != wanted.topic_prefix:
        raise UserError(
            f"the checkpoint {location} belongs to the topic prefix '{layout.topic_prefix}', not "
            f"'{wanted.topic_prefix}': start with another --checkpoint-location"
        )
    problem = replaced_topics(layout.topic_ids, wanted.topic_ids)
    if problem is not None:
        raise UserError(f"the checkpoint {location} belongs to other topics: {problem}")
