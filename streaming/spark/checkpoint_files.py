"""The files of a checkpoint: Spark's files, and this project's files.

They are read and written through Hadoop's file system, so a location on HDFS or in an object store works like a local
folder.
"""

import uuid

import msgspec
from msgspec import Struct
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streaming.errors import UserError

# Spark's file with the id of the query.
_QUERY_FILE_NAME = "metadata"


def open_path(spark: SparkSession, *parts: str) -> tuple[JavaObject, JavaObject]:
    """Returns Hadoop's path of a file of a checkpoint, and the file system of that path."""
    jvm = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path("/".join(parts))  # type: ignore[union-attr]
    return path, path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())


def write(file_system: JavaObject, path: JavaObject, new_path: JavaObject, content: bytes) -> None:
    """Writes a file under a temporary name and renames the file, so that a crash leaves the whole file or no file.

    Raises:
        UserError: The file system did not rename the file, and gave no reason.
    """
    stream = file_system.create(new_path, True)
    stream.write(bytearray(content))
    stream.close()
    if not file_system.rename(new_path, path):
        raise UserError(f"{path} cannot be written: its file system did not rename {new_path}. Check the folder.")


def read(spark: SparkSession, file_system: JavaObject, path: JavaObject) -> bytes:
    """Returns the content of a file; empty if the content does not match the file's checksum."""
    stream = file_system.open(path)
    try:
        return bytes(spark.sparkContext._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))  # type: ignore[union-attr]
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() != "ChecksumException":
            raise
        return b""
    finally:
        stream.close()


def query_id(spark: SparkSession, location: str) -> str | None:
    """Returns the id that Spark gave the query of a checkpoint; None if the query was never started.

    Raises:
        UserError: Spark's file of the query is damaged.
    """
    path, file_system = open_path(spark, location, _QUERY_FILE_NAME)
    if not file_system.exists(path):
        return None
    try:
        return msgspec.json.decode(read(spark, file_system, path), type=_Query).id
    except msgspec.DecodeError:
        raise damaged_query(location) from None


def damaged_query(location: str) -> UserError:
    """Returns the error for a missing or corrupt file of the query. Without the file no query starts."""
    return UserError(
        f"The checkpoint {location} is damaged: {_QUERY_FILE_NAME} is missing or corrupt. Restore the file from any "
        f'backup of this checkpoint; it never changes. If there is no backup, write {{"id":"{uuid.uuid4()}"}} into the '
        f"file, and delete .{_QUERY_FILE_NAME}.crc beside it."
    )


class _Query(Struct):
    """The only field that this module reads from Spark's file about a query."""

    id: str
