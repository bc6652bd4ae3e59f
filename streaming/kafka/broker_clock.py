"""The clock of Kafka's brokers, by which ages of records are measured: the clock of this machine may differ from it."""

import time

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message


class BrokerClock:
    """The brokers' clock, as far as records that this program has written tell it.

    Kafka has no request for the time. But a broker stamps the records of a topic with `LogAppendTime`, and tells their
    writer. Between two such records, the clock of this machine that is never set counts on.
    """

    def __init__(self) -> None:
        """Begins without a time, until a broker has stamped a record."""
        self._ahead_ms: int | None = None

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        """Takes the report about a record that was written. It comes a moment after the broker's stamp."""
        kind, timestamp_ms = message.timestamp()
        if error is None and kind == TIMESTAMP_LOG_APPEND_TIME:
            self._ahead_ms = timestamp_ms - _monotonic_ms()

    def now_ms(self) -> int | None:
        """Returns the time; None: no broker has told it yet."""
        return None if self._ahead_ms is None else _monotonic_ms() + self._ahead_ms

    def age_ms(self, message: Message) -> int:
        """Returns the time since a record was written, by its timestamp; 0 as long as the time is not known."""
        now_ms = self.now_ms()
        return 0 if now_ms is None else max(0, now_ms - message.timestamp()[1])


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
