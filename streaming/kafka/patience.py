"""Says once, while a program waits for a Kafka that does not answer, which server it tries and for how long.

All waits of a program count as one, until an answer comes. Otherwise a command with several clients says it several
times.
"""

import logging
import time

from streaming.system.logs import for_screens

# The longest wait for the answer to a request of most programs.
REQUEST_TIMEOUT_S = 10.0
# A user who waits longer than this is told what for. A busy broker may take some seconds to answer; one that cannot be
# connected to takes no longer than others.
_SILENCE_S = 5.0
_NO_CONNECTION_S = 2.0

_log = logging.getLogger(__name__)
# The servers of which it was said.
_told: set[str] = set()


class Wait:
    """A wait for an answer of Kafka."""

    def __init__(self, servers: str, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Begins the wait.

        Args:
            servers: The bootstrap servers.
            timeout_s: The longest time that it takes.
        """
        self._servers = servers
        self._timeout_s = timeout_s
        self._begin_s = time.monotonic()

    @property
    def is_over(self) -> bool:
        """Returns whether it has taken its longest time."""
        return time.monotonic() >= self._begin_s + self._timeout_s

    def look(self, no_connection: str | None = None) -> None:
        """Says that Kafka has not answered, if it is time and was not said before.

        Args:
            no_connection: Why the last connection failed; None: none has failed.
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
        """Notes an answer. What follows is another wait, which is told again."""
        self._begin_s = time.monotonic()
        _told.discard(self._servers)
