"""The time for which Kafka keeps the offsets of groups without members."""

import time

from streaming.core.observer import expiry
from streaming.kafka.admin import Admin

_FRESH_S = 3_600.0
# A short time, because programs do nothing else while they wait for the answer.
_TIMEOUT_S = 2.0


class KeptOffsets:
    """The time for which Kafka keeps the offsets of groups without members.

    Attributes:
        kept_ms: The time; None before the first answer.
    """

    def __init__(self, admin: Admin) -> None:
        self.kept_ms: int | None = None
        self._admin = admin
        self._asked_s: float | None = None

    def look(self) -> None:
        """Asks Kafka, at most once per hour. Without an answer, the known time stays."""
        now_s = time.monotonic()
        if self._asked_s is not None and now_s - self._asked_s < _FRESH_S:
            return
        self._asked_s = now_s
        self.kept_ms = self._admin.offsets_retention_ms(_TIMEOUT_S) or self.kept_ms

    @property
    def longest_rest_ms(self) -> int:
        """Returns the time after which the offsets of a group without members must be committed again."""
        return expiry.longest_rest_ms(self.kept_ms)
