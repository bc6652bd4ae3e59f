"""The clock of Kafka's brokers, by which ages of records are measured: the clock of this machine may differ from it."""

import time

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message


class BrokerClock:
    """The brokers' clock, as far as records that this program has written tell it.

    Kafka has no request for the time. But a broker stamps the records of a topic with `LogAppendTime`, and tells their
    writer. Between two such records, the clock of this machine that is never set counts on.
    """

    def __init__(self) -> None:
        """Begins with the wall clock of this machine, until a broker has stamped a record."""
        self._ahead_ms = time.time_ns() // 1_000_000 - _monotonic_ms()

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        """Takes the report about a record that was written. It comes a moment after the broker's stamp."""
        kind, timestamp_ms = message.timestamp()
        if error is None and kind == TIMESTAMP_LOG_APPEND_TIME:
            self._ahead_ms = timestamp_ms - _monotonic_ms()

    def now_ms(self) -> int:
        """Returns the time."""
        return _monotonic_ms() + self._ahead_ms

    def age_ms(self, message: Message) -> int:
        """Returns the time since a record was written, by its timestamp."""
        return max(0, self.now_ms() - message.timestamp()[1])


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
