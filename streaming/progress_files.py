"""Whether what a query needs to go on is whole: the newest of the files in which Spark keeps its progress."""

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streaming.errors import UserError


def require_whole(spark: SparkSession, location: str) -> None:
    """Looks at the newest file of the offsets and the newest of the commits of a checkpoint.

    Spark renames its files into place, but a machine that loses its power may keep the name and not the content.

    Raises:
        UserError: One is damaged; the message says what can be done.
    """
    jvm = spark.sparkContext._jvm
    for folder in ("offsets", "commits"):
        path = jvm.org.apache.hadoop.fs.Path(location, folder)  # type: ignore[union-attr]
        file_system = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        if not file_system.exists(path):
            continue
        names = [status.getPath().getName() for status in file_system.listStatus(path)]
        newest = max((int(name) for name in names if name.isdigit()), default=None)
        if newest is None:
            continue
        stream = file_system.open(path.suffix(f"/{newest}"))
        try:
            content = bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream))  # type: ignore[union-attr]
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != "ChecksumException":
                raise
            content = b""
        finally:
            stream.close()
        if not _is_whole(content):
            raise UserError(
                f"the checkpoint {location} is damaged: {folder}/{newest} is not whole. {_remedy(folder, newest)}"
            )


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
