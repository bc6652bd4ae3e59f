"""The layout of the monitor's checkpoint: its shards, over which queues are spread, and the topics of its offsets."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Struct, structs
from pyspark.sql import SparkSession

from streaming.core.activation.snapshot import FORMAT_VERSION
from streaming.errors import UserError
from streaming.kafka.topic_watch import replaced_topics
from streaming.spark import checkpoint_files, layout_file
from streaming.spark.format_versions import refuse_newer_checkpoint
from streaming.spark.session import shuffle_partitions
from streaming.spark.shard_keys import DEFAULT_SHARDS, balanced_keys
from streaming.system import hints
from streaming.wire.topics import Topics

_PROGRAM = "monitor"


class Layout(Struct):
    """The settings that a checkpoint fixes when it is created.

    Attributes:
        format_version: Version of the state's format when the checkpoint was made.
        shards: Number of shards, which determines the shard of each queue.
        topic_prefix: Prefix of the topics whose offsets the checkpoint holds.
        shard_keys: The Spark key of each shard. None in older checkpoints, whose keys are the numbers of the shards.
        topic_ids: Kafka's id of each topic whose offsets the checkpoint holds. Empty in older checkpoints.
        continued_from: The older checkpoint whose state and offsets this checkpoint took over; None without one.
        has_tick_source: Whether queue-ticks is a separate source. Fixed, because Spark logs offsets by source. In older
            checkpoints ticks and receives are one source.
        id: The id of the checkpoint. None in older checkpoints; see `id_of`.
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
        """Returns the Spark key of each shard."""
        return list(range(self.shards)) if self.shard_keys is None else self.shard_keys


@dataclass(frozen=True)
class Wanted:
    """The options of a monitor that its checkpoint may contradict.

    Attributes:
        shards: Number of shards; None for the checkpoint's number, or the default.
        topic_prefix: Prefix of the topics.
        topic_ids: Kafka's id of each topic whose offsets a checkpoint holds.
        continue_from: The checkpoint that a new checkpoint continues; None if the new checkpoint begins empty.
    """

    shards: int | None
    topic_prefix: str
    topic_ids: Mapping[str, str]
    continue_from: str | None


def settle(spark: SparkSession, location: str, wanted: Wanted) -> Layout:
    """Returns the layout of the checkpoint at a location; for a new checkpoint, the wanted layout, not yet written.

    Reads through Hadoop's file system, so that a location on HDFS or in an object store works like a local folder.

    Raises:
        UserError: The checkpoint has another number of shards, topic prefix or origin than wanted, belongs to topics
            that are gone, or is damaged. Or there is no checkpoint to continue from.
    """
    layout = read_layout(spark, location)
    if layout is None:
        return _new_layout(spark, wanted)
    if wanted.shards is not None and wanted.shards != layout.shards:
        raise UserError(
            f"The checkpoint {location} has {layout.shards} shards, not {wanted.shards}. Leave out "
            f"{hints.option('--shards', names_table=False)}, or start with a new "
            f"{hints.option('--checkpoint-location', names_table=False)} and "
            f"{hints.option('--continue-from', location)}."
        )
    _check_topics(layout, location, wanted)
    if wanted.continue_from is not None and wanted.continue_from != layout.continued_from:
        raise UserError(
            f"The checkpoint {location} exists already and does not continue {wanted.continue_from}. Leave out "
            f"{hints.option('--continue-from')}, or start with a new {hints.option('--checkpoint-location')}."
        )
    return layout


def read_layout(spark: SparkSession, location: str) -> Layout | None:
    """Returns the layout of the checkpoint at a location; None if there is no checkpoint.

    Raises:
        UserError: The checkpoint was written by a newer version, or the layout is damaged.
    """
    layout = layout_file.read(spark, location, Layout, _PROGRAM)
    if layout is None:
        return None
    refuse_newer_checkpoint(location, layout.format_version, FORMAT_VERSION)
    return layout


def keep(spark: SparkSession, location: str, layout: Layout) -> None:
    """Writes the layout of a new checkpoint. Call it only when no other monitor can be writing a layout.

    Raises:
        UserError: Another monitor has written a layout there since `settle`.
    """
    layout_file.keep(spark, location, layout, _PROGRAM)


def id_of(spark: SparkSession, location: str, layout: Layout) -> str:
    """Returns the id of the checkpoint at a location.

    The layout of an older checkpoint has no id. Spark's id of the query then replaces it, so nothing has to be written.
    Before the first start of the query, an id made of the location replaces it.

    Raises:
        UserError: Spark's file of the query is damaged.
    """
    return layout.id or checkpoint_files.query_id(spark, location) or str(uuid.uuid5(uuid.NAMESPACE_URL, location))


def _new_layout(spark: SparkSession, wanted: Wanted) -> Layout:
    default_shards = DEFAULT_SHARDS
    if wanted.continue_from is not None:
        older = read_layout(spark, wanted.continue_from)
        if older is None:
            raise UserError(
                f"{hints.option('--continue-from')}: there is no checkpoint at {wanted.continue_from}. Give the "
                "location of one."
            )
        # The handover takes over no offsets of ticks, so their topic may have been replaced.
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
            f"The checkpoint {location} belongs to the topic prefix '{layout.topic_prefix}', not "
            f"'{wanted.topic_prefix}'. Start with another {hints.option('--checkpoint-location')}."
        )
    problem = replaced_topics(layout.topic_ids, wanted.topic_ids)
    if problem is not None:
        raise UserError(f"The checkpoint {location} belongs to topics that were {problem}")
