"""Says in a command that follows a view when the monitor or Kafka falls silent, and when it is back."""

from streaming.cli.dashboard.contact import Contact
from streaming.cli.lines import say
from streaming.core.times import iso_time
from streaming.system import wall_clock
from streaming.system.ages import instant_utc


class Silence:
    """The silences of Kafka and of the monitor that the command has told."""

    def __init__(self, contact: Contact, servers: str, *, is_told: bool) -> None:
        """Begins without a silence.

        Args:
            contact: The contact with Kafka and with the monitor.
            servers: The bootstrap servers.
            is_told: Whether the command has told already that the monitor does not run, or that this is unknown.
        """
        self._contact = contact
        self._servers = servers
        self._is_kafka_silent = False
        self._is_monitor_silent = is_told
        # When a monitor that fell silent had last left a sign of life.
        self._last_sign: str | None = None

    def tell(self) -> None:
        """Says on the standard error what has changed since the last call."""
        since_ms = self._contact.silent_since_ms()
        if since_ms is not None and not self._is_kafka_silent:
            _say(f"Kafka at {self._servers} has not answered since {instant_utc(iso_time(since_ms))}")
        elif since_ms is None and self._is_kafka_silent:
            _say("Kafka answers again")
        self._is_kafka_silent = since_ms is not None
        sentence = self._contact.monitor
        # Whether a monitor runs that is just starting, or that was not looked for yet, is known soon.
        if self._is_kafka_silent or self._contact.is_normal:
            return
        sign = self._contact.committed
        if sentence:
            if not self._is_monitor_silent:
                _say(sentence)
            self._is_monitor_silent, self._last_sign = True, sign
        # A monitor joins its group before it is ready, and the last sign of its predecessor may still be in time.
        elif self._is_monitor_silent and (sign is None or sign != self._last_sign):
            _say("the monitor runs")
            self._is_monitor_silent = False


def _say(sentence: str) -> None:
    say(f"{instant_utc(iso_time(wall_clock.now_ms()))}: {sentence}", err=True)
