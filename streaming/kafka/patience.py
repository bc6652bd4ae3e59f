"""Logs once that Kafka does not answer, with the servers and the time that the program still waits.

Until an answer comes, all waits of a program for the same servers count as one wait. Otherwise a command with several
clients would log the same sentence several times.
"""

import logging
import time

from streaming.system.logs import for_screens

# The longest wait for the answer to a request of most programs.
REQUEST_TIMEOUT_S = 10.0
# The longest wait for an answer of a coordinator that has just answered.
COORDINATOR_TIMEOUT_S = 60.0
# The time-out of the request itself: the longest that librdkafka accepts, because a request that times out while Kafka
# is away may abort the process when Kafka is back (see group_coordinator).
COORDINATOR_REQUEST_S = 3600.0
# After these times, a user is told the reason of a wait. A busy broker may take some seconds to answer. After a failed
# connection, there is no reason to wait so long.
_SILENCE_S = 5.0
_NO_CONNECTION_S = 2.0

_log = logging.getLogger(__name__)
# The servers about which the sentence was logged since their last answer.
_told: set[str] = set()


class Wait:
    """A wait for an answer of Kafka."""

    def __init__(self, servers: str, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Begins the wait.

        Args:
            servers: The bootstrap servers.
            timeout_s: The longest time that the wait takes.
        """
        self._servers = servers
        self._timeout_s = timeout_s
        self._begin_s = time.monotonic()

    @property
    def is_over(self) -> bool:
        """Returns whether the longest time of the wait is over."""
        return time.monotonic() >= self._begin_s + self._timeout_s

    def look(self, no_connection: str | None = None) -> None:
        """Logs that Kafka has not answered, if the wait is long and no wait for these servers has logged that.

        Args:
            no_connection: The reason why the last connection failed; None if no connection has failed.
        """
        waited_s = time.monotonic() - self._begin_s
        if waited_s < (_SILENCE_S if no_connection is None else _NO_CONNECTION_S) or self._servers in _told:
            return
        _told.add(self._servers)
        reason = f" ({no_connection})" if no_connection else ""
        said = (
            f"Kafka at {self._servers} has not answered for {waited_s:.0f} s{reason}. Trying for up to "
            f"{max(0.0, self._timeout_s - waited_s):.0f} s more"
        )
        _log.warning("%s", for_screens(_log, said))

    def answered(self) -> None:
        """Notes an answer. A wait after it is another wait, which may log again."""
        self._begin_s = time.monotonic()
        _told.discard(self._servers)
