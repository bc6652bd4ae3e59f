"""The files in which Spark keeps the progress of a query. A query can continue only if the newest files are whole."""

import json

import msgspec
from pyspark.sql import SparkSession

from streaming.errors import UserError
from streaming.spark import checkpoint_files


def require_whole(spark: SparkSession, location: str) -> None:
    """Checks the file of the query, the newest file of offsets and the newest file of commits of a checkpoint.

    Spark renames its files into place, but after a power failure a file may have its name and not its content.

    Raises:
        UserError: A file is damaged. The message says what to do.
    """
    if checkpoint_files.query_id(spark, location) is None and newest_batch(spark, location, "offsets") is not None:
        raise checkpoint_files.damaged_query(location)
    for folder in ("offsets", "commits"):
        newest = newest_batch(spark, location, folder)
        if newest is not None and not _is_whole(_read_batch(spark, location, folder, newest)):
            raise UserError(
                f"The checkpoint {location} is damaged: {folder}/{newest} is corrupt. {_remedy(folder, newest)}"
            )


def newest_batch(spark: SparkSession, location: str, folder: str) -> int | None:
    """Returns the newest batch in the folder `offsets` or `commits` of a checkpoint; None if there is no batch."""
    path, file_system = checkpoint_files.open_path(spark, location, folder)
    if not file_system.exists(path):
        return None
    names = [status.getPath().getName() for status in file_system.listStatus(path)]
    return max((int(name) for name in names if name.isdigit()), default=None)


def _read_batch(spark: SparkSession, location: str, folder: str, batch: int) -> bytes:
    path, file_system = checkpoint_files.open_path(spark, location, folder, str(batch))
    return checkpoint_files.read(spark, file_system, path)


def end_offsets(spark: SparkSession, location: str, batch: int) -> dict[str, dict[str, int]]:
    """Returns topic -> partition -> the offset at which a batch ends.

    Spark's file has the version, metadata, and one line per source.
    """
    lines = _read_batch(spark, location, "offsets", batch).decode().splitlines()[2:]
    # `-` stands for a source from which nothing has been read yet.
    return {topic: offsets for line in lines if line != "-" for topic, offsets in json.loads(line).items()}


def is_complete(spark: SparkSession, location: str) -> bool:
    """Returns whether no batch has to run again: the newest batch is committed, or there is no batch."""
    return newest_batch(spark, location, "offsets") == newest_batch(spark, location, "commits")


def _is_whole(content: bytes) -> bool:
    """Returns whether a file is complete: a version, and at least one line that is JSON, or `-` for nothing read."""
    version, *lines = content.decode(errors="replace").splitlines() or [""]
    try:
        values = [line == "-" or msgspec.json.decode(line) for line in lines]
    except msgspec.DecodeError:
        return False
    return version.startswith("v") and bool(values)


def _remedy(folder: str, batch: int) -> str:
    if folder == "commits":
        return f"Delete the file: batch {batch} then runs again, and writes the same records again."
    return (
        f"Put a backup in the place of the checkpoint. Or delete the file, and commits/{batch} if it exists: then "
        f"nothing is lost, but the records of batch {batch} are written again with other ids."
    )
