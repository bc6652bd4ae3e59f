"""The reasons for dead letters, which the workers report to the driver. The driver logs them."""

import logging
import time
from collections import Counter
from collections.abc import Iterable

from streaming.core.numbers import plural
from streaming.spark.row_counts import CounterParam
from streaming.system import hints
from streaming.system.logs import printable
from streaming.wire.output_records import OutputRow

# Interval between two log lines for one reason, and the most reasons that are counted separately. There may be any
# number of reasons, because a reason may quote the record.
INTERVAL_S = 60.0
MAX_REASONS = 100
_MAX_REASON_LENGTH = 150
OTHER_REASONS = "other reasons"

# reason -> dead letters
Refusals = Counter[str]

_log = logging.getLogger(__name__)


def reasons_in(rows: Iterable[OutputRow], topic: str) -> Refusals:
    """Counts the reasons of the dead letters among the rows that a shard writes. Dead letters go to `topic`."""
    letters = [dict(row[3] or ()) for row in rows if row[0] == topic]
    return _bounded(Counter(each["reason"].decode()[:_MAX_REASON_LENGTH] for each in letters))


def _bounded(reasons: Refusals) -> Refusals:
    if len(reasons) <= MAX_REASONS:
        return reasons
    kept = Counter(dict([each for each in reasons.most_common() if each[0] != OTHER_REASONS][: MAX_REASONS - 1]))
    kept[OTHER_REASONS] = reasons.total() - kept.total()
    return kept


class RefusalsParam(CounterParam):
    """Adds up refusals, with at most MAX_REASONS different reasons."""

    def addInPlace(self, value1: Refusals, value2: Refusals) -> Refusals:  # noqa: N802  (Spark's name)
        """Returns a new counter, because another thread of the driver reads the old counter."""
        return _bounded(super().addInPlace(value1, value2))


class RefusalLog:
    """Logs the numbers of dead letters, for each reason at most once per INTERVAL_S."""

    def __init__(self) -> None:
        self._said: Refusals = Counter()
        self._next_s: dict[str, float] = {}

    def look(self, refused: Refusals) -> None:
        """Logs the refusals that are new and due.

        Args:
            refused: All dead letters so far, by reason.
        """
        now_s = time.monotonic()
        for reason, count in refused.items():
            new = count - self._said[reason]
            if new > 0 and now_s >= self._next_s.get(reason, 0.0):
                self._said[reason], self._next_s[reason] = count, now_s + INTERVAL_S
                letters = plural(new, "dead letter")
                shown = f"`{hints.command('dead-letters')}` shows the refused records"
                _log.warning("%s: %s (%s)", letters, printable(reason), shown)
