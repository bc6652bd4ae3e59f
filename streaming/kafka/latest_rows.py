"""The latest row of each key of a compacted topic, such as the monitors view."""

from collections.abc import Callable
from typing import Generic, TypeVar

from confluent_kafka import Message

from streaming.wire.record_decoders import RecordDecoder

Row = TypeVar("Row")


class LatestRows(Generic[Row]):
    """The latest rows, updated by each record that is taken.

    Attributes:
        rows: The latest valid row of each key.
    """

    def __init__(
        self, wanted: str, decode: Callable[[Message], tuple[str, Row | None]], say: Callable[[str], None]
    ) -> None:
        """Creates the view, which has no rows yet.

        Args:
            wanted: The kind of record, for lines about invalid records.
            decode: Returns a record's key and its row, or None for the row of a tombstone; raises InvalidRecordError.
            say: Logs a line about a record that cannot be decoded.
        """
        self.rows: dict[str, Row] = {}
        self._decoder = RecordDecoder(wanted, decode, say)

    def take(self, message: Message) -> str | None:
        """Takes a record; returns its key, or None if the record is invalid. Invalid records change nothing."""
        decoded = self._decoder.decode(message)
        if decoded is None:
            return None
        key, row = decoded
        if row is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = row
        return key

    @property
    def passed_over(self) -> int:
        """The number of invalid records."""
        return self._decoder.passed_over
