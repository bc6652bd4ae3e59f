"""What the checkpoint fixes besides Spark's own files: how queues are spread over shards."""

import msgspec
from msgspec import Struct
from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from streaming.core.snapshot import FORMAT_VERSION
from streaming.errors import UserError
from streaming.shard_keys import balanced_keys
from streaming.spark_session import shuffle_partitions

_FILE_NAME = "queue-activation.json"


class Layout(Struct):
    """The part of the settings a checkpoint was made with and cannot change.

    Attributes:
        format_version: Version of the state's format when the checkpoint was made.
        shards: Number of shards; a queue's shard follows from it.
        topic_prefix: Prefix of the topics whose offsets the checkpoint holds.
        shard_keys: The Spark key of each shard; None in older checkpoints: the shards' numbers.
    """

    format_version: int
    shards: int
    topic_prefix: str
    shard_keys: list[int] | None = None

    @property
    def keys(self) -> list[int]:
        """The Spark key of each shard."""
        return list(range(self.shards)) if self.shard_keys is None else self.shard_keys


def settle(spark: SparkSession, location: str, shards: int | None, topic_prefix: str, default_shards: int) -> Layout:
    """The layout of the checkpoint at a location; a new checkpoint gets the one asked for.

    Through Hadoop's file system, so that a location on HDFS or an object store works as a local folder does.

    Raises:
        UserError: The checkpoint has another number of shards or another topic prefix than asked for.
    """
    path, file_system = _open(spark, location)
    if not file_system.exists(path):
        count = shards or default_shards
        layout = Layout(FORMAT_VERSION, count, topic_prefix, balanced_keys(count, shuffle_partitions(spark)))
        _write(file_system, path, path.suffix(".new"), msgspec.json.encode(layout))
        return layout
    layout = msgspec.json.decode(_read(spark, file_system, path), type=Layout)
    if layout.format_version > FORMAT_VERSION:
        raise UserError(
            f"the checkpoint {location} is of format {layout.format_version}, this version knows up to "
            f"{FORMAT_VERSION}: start the version that wrote it, or a newer one"
        )
    if shards is not None and shards != layout.shards:
        raise UserError(
            f"the checkpoint {location} has {layout.shards} shards, not {shards}: leave --shards out, "
            "or start with another --checkpoint-location"
        )
    if layout.topic_prefix != topic_prefix:
        raise UserError(
            f"the checkpoint {location} belongs to the topic prefix '{layout.topic_prefix}', not '{topic_prefix}': "
            "start with another --checkpoint-location"
        )
    return layout


def _open(spark: SparkSession, location: str) -> tuple[JavaObject, JavaObject]:
    jvm = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(location, _FILE_NAME)  # type: ignore[union-attr]
    return path, path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())


def _write(file_system: JavaObject, path: JavaObject, new_path: JavaObject, content: bytes) -> None:
    """Writes it beside and renames it: a crash leaves the whole file or none."""
    stream = file_system.create(new_path, True)
    stream.write(bytearray(content))
    stream.close()
    file_system.rename(new_path, path)


def _read(spark: SparkSession, file_system: JavaObject, path: JavaObject) -> bytes:
    stream = file_system.open(path)
    content = spark.sparkContext._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)  # type: ignore[union-attr]
    stream.close()
    return bytes(content)
