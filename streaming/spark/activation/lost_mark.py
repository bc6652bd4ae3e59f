"""Keeps in the checkpoint that reports are lost, until all shards know of it: a tick tells them, and may be deleted."""

from pyspark.sql import SparkSession

from streaming.spark import checkpoint_files

_FILE_NAME = "queue-activation.reports-lost"


class LostMark:
    """The empty file whose presence says that the shards of a checkpoint may not know that reports are lost."""

    def __init__(self, spark: SparkSession, location: str, older: str | None) -> None:
        """Stores the places.

        Args:
            spark: The session.
            location: The checkpoint.
            older: The checkpoint from which this one still takes over state, and which is only read; None: there is
                none.
        """
        self._spark = spark
        self._location = location
        self._older = older

    def is_kept(self) -> bool:
        """Returns whether the file is there, or in the older checkpoint."""
        for location in filter(None, (self._location, self._older)):
            path, file_system = checkpoint_files.open_path(self._spark, location, _FILE_NAME)
            if file_system.exists(path):
                return True
        return False

    def keep(self) -> None:
        """Creates the file. Call it only when no other monitor can be writing to the checkpoint."""
        path, file_system = checkpoint_files.open_path(self._spark, self._location, _FILE_NAME)
        file_system.create(path, True).close()

    def drop(self) -> None:
        """Deletes the file, because all shards know."""
        path, file_system = checkpoint_files.open_path(self._spark, self._location, _FILE_NAME)
        file_system.delete(path, False)
