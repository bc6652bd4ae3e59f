"""The project's own file in a checkpoint: the program of the checkpoint, and the settings that cannot change."""

from typing import TypeVar

import msgspec
from msgspec import Struct
from pyspark.sql import SparkSession

from streaming.errors import UserError
from streaming.spark import checkpoint_files
from streaming.system import hints

FILE_NAME = "queue-activation.json"

Layout = TypeVar("Layout", bound=Struct)


class _Owner(Struct):
    """The program of a checkpoint. Monitors do not write the field."""

    program: str = "monitor"


def read(spark: SparkSession, location: str, of: type[Layout], program: str) -> Layout | None:
    """Returns the layout of the checkpoint at a location; None if there is no checkpoint.

    Raises:
        UserError: The checkpoint belongs to another program, or the layout is damaged.
    """
    path, file_system = checkpoint_files.open_path(spark, location, FILE_NAME)
    if not file_system.exists(path):
        return None
    return decode(checkpoint_files.read(spark, file_system, path), location, of, program)


def decode(content: bytes, location: str, of: type[Layout], program: str) -> Layout:
    """Returns the layout in the content of a checkpoint's file.

    Raises:
        UserError: The checkpoint belongs to another program, or the file is corrupt. After a power failure it may have
            its name but not its content.
    """
    try:
        owner = msgspec.json.decode(content, type=_Owner).program
        if owner == program:
            return msgspec.json.decode(content, type=of)
    except msgspec.DecodeError:
        raise UserError(
            f"The checkpoint {location} is damaged: {FILE_NAME} is corrupt. Restore the file from any backup of this "
            "checkpoint; it never changes. If there is no backup, start with another "
            f"{hints.option('--checkpoint-location')}."
        ) from None
    raise UserError(
        f"The checkpoint {location} belongs to a {owner}, not to a {program}. Start with another "
        f"{hints.option('--checkpoint-location')}."
    )


def keep(spark: SparkSession, location: str, layout: Layout, program: str) -> None:
    """Writes the layout of a new checkpoint. Call this only when no other program can be writing a layout there.

    Raises:
        UserError: Another program has written a layout there in the meantime.
    """
    found = read(spark, location, type(layout), program)
    if found is None:
        path, file_system = checkpoint_files.open_path(spark, location, FILE_NAME)
        checkpoint_files.write(file_system, path, path.suffix(".new"), msgspec.json.encode(layout))
    elif found != layout:
        raise UserError(
            f"Another {program} has just begun the checkpoint {location}. Start this one again, or give it another "
            f"{hints.option('--checkpoint-location')}."
        )
