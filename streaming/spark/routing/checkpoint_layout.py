"""The layout of the router's checkpoint, and the settings with which its batches run.

The layout never changes. The settings may change only between two batches, because a batch that runs again must write
the same records. So each change is a separate file, named after the first batch that runs with the new settings.
"""

import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct
from pyspark.sql import SparkSession

from streaming.core.conversations.snapshot import FORMAT_VERSION
from streaming.errors import UserError
from streaming.kafka.topic_watch import replaced_names
from streaming.spark import checkpoint_files, layout_file, progress_files
from streaming.spark.format_versions import refuse_newer_checkpoint
from streaming.spark.routing.shard_settings import RouterShardSettings
from streaming.spark.session import shuffle_partitions
from streaming.spark.shard_keys import balanced_keys
from streaming.system import hints

PROGRAM = "router"
# The version of the rules by which a batch's decisions follow from its records. It rises with each change after which a
# batch that is done again would write other decisions.
RULES_VERSION = 6

_SETTINGS_PREFIX = "queue-activation.settings-"


class RouterLayout(Struct):
    """The settings that a checkpoint fixes when it is created.

    Attributes:
        program: The program of the checkpoint.
        format_version: Version of the state's format when the checkpoint was made.
        topic_prefix: Prefix of the topics whose offsets the checkpoint holds.
        shard_keys: The Spark key of the shard of each partition of service-messages.
        topic_ids: Kafka's id of each topic on whose records the state rests.
        generation: The generation of the checkpoint's decisions.
        id: The identifier of the checkpoint.
        secret: The secret from which the router makes the identifiers of its own conversations. Checkpoints of format 2
            have no secret.
    """

    program: str
    format_version: int
    topic_prefix: str
    shard_keys: list[int]
    topic_ids: dict[str, str]
    generation: int
    id: str
    secret: str = ""


@dataclass(frozen=True)
class Wanted:
    """The facts about Kafka and the options that a checkpoint may contradict.

    Attributes:
        topic_prefix: Prefix of the topics.
        partitions: The number of partitions of service-messages.
        topic_ids: Kafka's id of each topic on whose records the state rests.
    """

    topic_prefix: str
    partitions: int
    topic_ids: Mapping[str, str]


def settle(spark: SparkSession, location: str, wanted: Wanted) -> tuple[RouterLayout, bool]:
    """Returns the layout of the checkpoint at a location, and whether it exists. A new layout is not yet written.

    Raises:
        UserError: The checkpoint belongs to other topics or another program, or is damaged.
    """
    layout = layout_file.read(spark, location, RouterLayout, PROGRAM)
    if layout is None:
        keys = balanced_keys(wanted.partitions, shuffle_partitions(spark))
        ids = dict(wanted.topic_ids)
        names = str(uuid.uuid4()), secrets.token_hex(16)
        return RouterLayout(PROGRAM, FORMAT_VERSION, wanted.topic_prefix, keys, ids, 1, *names), False
    refuse_newer_checkpoint(location, layout.format_version, FORMAT_VERSION)
    if layout.topic_prefix != wanted.topic_prefix:
        raise UserError(
            f"The checkpoint {location} belongs to the topic prefix '{layout.topic_prefix}', not "
            f"'{wanted.topic_prefix}'. Start with another {hints.option('--checkpoint-location')}."
        )
    if replaced := replaced_names(layout.topic_ids, wanted.topic_ids):
        raise UserError(f"The checkpoint {location} belongs to topics that were {advice_about(replaced)}")
    if len(layout.shard_keys) != wanted.partitions:
        raise UserError(
            f"The checkpoint {location} was made when service-messages had {len(layout.shard_keys)} partitions, and it "
            f"has {wanted.partitions} now. The number cannot be changed, because the partition of a conversation is "
            "that of its key: create the topics of services again, under another --topic-prefix."
        )
    return layout, True


def advice_about(replaced: list[str]) -> str:
    """Returns the end of a sentence about replaced topics that begins, for example, with "Topics were"."""
    return (
        f"deleted, or deleted and created again: {', '.join(replaced)}. Their records are lost, and the state of the "
        "conversations rests on them. Create all topics of services again under another --topic-prefix, and start with "
        f"another {hints.option('--checkpoint-location')}."
    )


def keep(spark: SparkSession, location: str, layout: RouterLayout) -> None:
    """Writes the layout of a new checkpoint. Call it only when no other router can be writing a layout.

    Raises:
        UserError: Another router has written a layout there since `settle`.
    """
    layout_file.keep(spark, location, layout, PROGRAM)


def unfinished(spark: SparkSession, location: str, settings: RouterShardSettings) -> RouterShardSettings | None:
    """Returns the settings with which the last batch must run again before other settings apply.

    Returns None if the last batch need not run again with other settings.

    Call it only when no other router can be running batches of the checkpoint.

    Raises:
        UserError: The batch was begun by a version that decides by other rules.
    """
    _, found = _newest_settings(spark, location)
    if found is None or found == plain(settings) or progress_files.is_complete(spark, location):
        return None
    rules = found.pop("rules_version", None)
    if rules != RULES_VERSION:
        raise UserError(
            f"The last batch of the checkpoint {location} is not complete, and was begun by a version of the router "
            f"that decides by other rules ({rules} instead of {RULES_VERSION}). Start that version once, when no "
            "messages are sent, wait for `router ready`, and stop it with SIGTERM. Then start this one."
        )
    return msgspec.convert(found, RouterShardSettings)


def keep_settings(spark: SparkSession, location: str, settings: RouterShardSettings) -> None:
    """Writes the settings for the next batches if they have changed. The last batch must be complete."""
    wanted = plain(settings)
    newest, found = _newest_settings(spark, location)
    if found == wanted:
        return
    last = progress_files.newest_batch(spark, location, "offsets")
    first = 0 if last is None else last + 1
    path, file_system = checkpoint_files.open_path(spark, location, f"{_SETTINGS_PREFIX}{first}")
    if newest == first:
        # No batch has run with them yet.
        file_system.delete(path, False)
    checkpoint_files.write(file_system, path, path.suffix(".new"), msgspec.json.encode(wanted, order="sorted"))


def plain(settings: RouterShardSettings) -> dict[str, Any]:
    """Returns the settings as they are stored, and the version of the rules."""
    fields: dict[str, Any] = msgspec.to_builtins(settings)
    addresses = sorted(settings.instance.addresses)
    return fields | {"instance": fields["instance"] | {"addresses": addresses}, "rules_version": RULES_VERSION}


def _newest_settings(spark: SparkSession, location: str) -> tuple[int | None, dict[str, Any] | None]:
    """Returns the first batch of the newest settings, and the settings; None and None without settings."""
    folder, file_system = checkpoint_files.open_path(spark, location)
    if not file_system.exists(folder):
        return None, None
    names = [str(status.getPath().getName()) for status in file_system.listStatus(folder)]
    numbers = [name.removeprefix(_SETTINGS_PREFIX) for name in names if name.startswith(_SETTINGS_PREFIX)]
    newest = max((int(number) for number in numbers if number.isdigit()), default=None)
    if newest is None:
        return None, None
    path, _ = checkpoint_files.open_path(spark, location, f"{_SETTINGS_PREFIX}{newest}")
    try:
        return newest, msgspec.json.decode(checkpoint_files.read(spark, file_system, path), type=dict[str, Any])
    except msgspec.DecodeError:
        raise UserError(
            f"The checkpoint {location} is damaged: {_SETTINGS_PREFIX}{newest} is corrupt. Restore the file from any "
            "backup of this checkpoint."
        ) from None
