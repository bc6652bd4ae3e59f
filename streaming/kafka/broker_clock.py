"""The clock of Kafka's brokers. It gives the ages of records, because this machine's clock may differ from it."""

import time

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message


class BrokerClock:
    """The brokers' clock, computed from the timestamps of records that this program has written.

    Kafka has no request for the time. But with `LogAppendTime`, a broker stamps a record and returns the timestamp to
    the writer. Between two such records, this machine's monotonic clock measures the time.
    """

    def __init__(self) -> None:
        self._ahead_ms: int | None = None

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        """Takes the report about a written record. The report comes a moment after the broker's timestamp."""
        kind, timestamp_ms = message.timestamp()
        if error is None and kind == TIMESTAMP_LOG_APPEND_TIME:
            self._ahead_ms = timestamp_ms - monotonic_ms()

    def now_ms(self) -> int | None:
        """Returns the time; None until a broker has stamped a record."""
        return None if self._ahead_ms is None else monotonic_ms() + self._ahead_ms

    def age_ms(self, message: Message) -> int:
        """Returns the age of a record by its timestamp; 0 until the brokers' time is known."""
        now_ms = self.now_ms()
        return 0 if now_ms is None else max(0, now_ms - message.timestamp()[1])


def monotonic_ms() -> int:
    """Returns the time by the monotonic clock of this machine."""
    return time.monotonic_ns() // 1_000_000
