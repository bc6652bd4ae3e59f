"""Whether what a query needs to go on is whole: the newest of the files in which Spark keeps its progress."""

import msgspec
from pyspark.sql import SparkSession

from streaming.errors import UserError
from streaming.spark import checkpoint_files


def require_whole(spark: SparkSession, location: str) -> None:
    """Looks at the file of the query, the newest of the offsets and the newest of the commits of a checkpoint.

    Spark renames its files into place, but a machine that loses its power may keep the name and not the content.

    Raises:
        UserError: One is damaged; the message says what can be done.
    """
    if checkpoint_files.query_id(spark, location) is None and newest_batch(spark, location, "offsets") is not None:
        raise checkpoint_files.damaged_query(location)
    for folder in ("offsets", "commits"):
        newest = newest_batch(spark, location, folder)
        if newest is None:
            continue
        if not _is_whole(read_batch(spark, location, folder, newest)):
            raise UserError(
                f"the checkpoint {location} is damaged: {folder}/{newest} is not whole. {_remedy(folder, newest)}"
            )


def newest_batch(spark: SparkSession, location: str, folder: str) -> int | None:
    """The newest batch in `offsets` or `commits` of a checkpoint; None if there is none."""
    path, file_system = checkpoint_files.open_path(spark, location, folder)
    if not file_system.exists(path):
        return None
    names = [status.getPath().getName() for status in file_system.listStatus(path)]
    return max((int(name) for name in names if name.isdigit()), default=None)


def read_batch(spark: SparkSession, location: str, folder: str, batch: int) -> bytes:
    """The file of a batch in `offsets` or `commits` of a checkpoint."""
    path, file_system = checkpoint_files.open_path(spark, location, folder, str(batch))
    return checkpoint_files.read(spark, file_system, path)


def _is_whole(content: bytes) -> bool:
    """Whether it is what Spark writes: a version, and at least one line of JSON; `-` stands for nothing read yet."""
    version, *lines = content.decode(errors="replace").splitlines() or [""]
    try:
        values = [line == "-" or msgspec.json.decode(line) for line in lines]
    except msgspec.DecodeError:
        return False
    return version.startswith("v") and bool(values)


def _remedy(folder: str, batch: int) -> str:
    if folder == "commits":
        return f"Delete it: batch {batch} is then done again, and writes again what it wrote."
    return (
        f"Put a backup of the checkpoint in its place; or delete it, and commits/{batch} if there is one: nothing is "
        f"lost then, but what batch {batch} has written is written again with other ids."
    )
