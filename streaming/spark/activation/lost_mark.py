"""Notes in the checkpoint that reports are lost, until all shards know this. Kafka may delete the tick that says so."""

from pyspark.sql import SparkSession

from streaming.spark import checkpoint_files

_FILE_NAME = "queue-activation.reports-lost"


class LostMark:
    """An empty file in a checkpoint, which says that reports are lost. It is deleted once all shards know this."""

    def __init__(self, spark: SparkSession, location: str, older: str | None) -> None:
        """Stores the locations of the file.

        Args:
            spark: The session.
            location: The checkpoint.
            older: The checkpoint from which this checkpoint still takes over state; None without a handover.
        """
        self._spark = spark
        self._location = location
        self._older = older

    def is_kept(self) -> bool:
        """Returns whether the file exists in the checkpoint or in the older checkpoint."""
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
        """Deletes the file, because all shards know that reports are lost."""
        path, file_system = checkpoint_files.open_path(self._spark, self._location, _FILE_NAME)
        file_system.delete(path, False)
