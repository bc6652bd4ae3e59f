"""What the checkpoint fixes besides Spark's own files: how queues are spread over shards, and whose offsets it has."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from msgspec import Struct
from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from streaming.core.snapshot import FORMAT_VERSION
from streaming.errors import UserError
from streaming.shard_keys import DEFAULT_SHARDS, balanced_keys
from streaming.spark_session import shuffle_partitions
from streaming.topic_watch import replaced_topics

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
    """

    format_version: int
    shards: int
    topic_prefix: str
    shard_keys: list[int] | None = None
    topic_ids: dict[str, str] = {}
    continued_from: str | None = None
    has_tick_source: bool = False

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
    """The layout of the checkpoint at a location; a new checkpoint gets the one asked for.

    Through Hadoop's file system, so that a location on HDFS or an object store works as a local folder does.

    Raises:
        UserError: The checkpoint has another number of shards, another topic prefix or another origin than asked for,
            or belongs to topics that are gone; or there is nothing to continue from.
    """
    layout = read_layout(spark, location)
    if layout is None:
        return _create(spark, location, wanted)
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
    """The layout of the checkpoint at a location; None if there is no checkpoint.

    Raises:
        UserError: The checkpoint was written by a newer version.
    """
    path, file_system = open_path(spark, location, _FILE_NAME)
    if not file_system.exists(path):
        return None
    layout = msgspec.json.decode(read(spark, file_system, path), type=Layout)
    if layout.format_version > FORMAT_VERSION:
        raise UserError(
            f"the checkpoint {location} is of format {layout.format_version}, this version knows up to "
            f"{FORMAT_VERSION}: start the version that wrote it, or a newer one"
        )
    return layout


def _create(spark: SparkSession, location: str, wanted: Wanted) -> Layout:
    default_shards = DEFAULT_SHARDS
    if wanted.continue_from is not None:
        older = read_layout(spark, wanted.continue_from)
        if older is None:
            raise UserError(f"there is no checkpoint of a monitor at {wanted.continue_from}: correct --continue-from")
        _check_topics(older, wanted.continue_from, wanted)
        default_shards = older.shards
    count = wanted.shards or default_shards
    keys = balanced_keys(count, shuffle_partitions(spark))
    topic_ids = dict(wanted.topic_ids)
    layout = Layout(
        FORMAT_VERSION, count, wanted.topic_prefix, keys, topic_ids, wanted.continue_from, has_tick_source=True
    )
    path, file_system = open_path(spark, location, _FILE_NAME)
    _write(file_system, path, path.suffix(".new"), msgspec.json.encode(layout))
    return layout


def _check_topics(layout: Layout, location: str, wanted: Wanted) -> None:
    if layout.topic_prefix != wanted.topic_prefix:
        raise UserError(
            f"the checkpoint {location} belongs to the topic prefix '{layout.topic_prefix}', not "
            f"'{wanted.topic_prefix}': start with another --checkpoint-location"
        )
    problem = replaced_topics(layout.topic_ids, wanted.topic_ids)
    if problem is not None:
        raise UserError(f"the checkpoint {location} belongs to other topics: {problem}")


def open_path(spark: SparkSession, *parts: str) -> tuple[JavaObject, JavaObject]:
    """Hadoop's path of a file of a checkpoint, and the file system that it is on."""
    jvm = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path("/".join(parts))  # type: ignore[union-attr]
    return path, path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())


def _write(file_system: JavaObject, path: JavaObject, new_path: JavaObject, content: bytes) -> None:
    """Writes it beside and renames it: a crash leaves the whole file or none."""
    stream = file_system.create(new_path, True)
    stream.write(bytearray(content))
    stream.close()
    file_system.rename(new_path, path)


def read(spark: SparkSession, file_system: JavaObject, path: JavaObject) -> bytes:
    """The content of a file."""
    stream = file_system.open(path)
    try:
        return bytes(spark.sparkContext._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))  # type: ignore[union-attr]
    finally:
        stream.close()
