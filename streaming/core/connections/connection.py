"""The state of a connection to another instance: when it is opened, rests after a failure, and is closed when idle.

The times are those of Service Broker's transport ("Service Broker Periodic Tasks"): a destination is left alone for
15 s after a disconnection and for 60 s after an attempt that has failed, and a connection that has been idle for 90 s
is closed.
"""

from dataclasses import dataclass
from enum import StrEnum


class ConnectionState(StrEnum):
    """The state of a connection."""

    CLOSED = "CLOSED"
    CONNECTING = "CONNECTING"
    CONNECTED = "CONNECTED"


@dataclass(frozen=True, slots=True)
class ConnectionTimes:
    """The times of connections.

    Attributes:
        after_disconnection_ms: How long a destination is left alone after a disconnection.
        after_failure_ms: The same after an attempt to connect that has failed.
        idle_ms: How long a connection may be idle.
    """

    after_disconnection_ms: int = 15_000
    after_failure_ms: int = 60_000
    idle_ms: int = 90_000


@dataclass(slots=True)
class Connection:
    """A connection to one address. All instants are of one clock.

    Attributes:
        times: The times.
        state: The state.
        since_ms: The instant of the last change of the state.
        used_ms: The instant at which something was last to be sent.
        suppressed_until_ms: The instant before which the destination is left alone.
        is_wanted: Whether something was to be sent since it was closed.
        last_error: Why it was closed or could not be opened; empty: neither has happened.
    """

    times: ConnectionTimes
    state: ConnectionState = ConnectionState.CLOSED
    since_ms: int = 0
    used_ms: int = 0
    suppressed_until_ms: int = 0
    is_wanted: bool = False
    last_error: str = ""

    def use(self, now_ms: int) -> bool:
        """Notes that something is to be sent. Returns whether it can be taken: now, or when the attempt succeeds."""
        self.used_ms = now_ms
        if self.state is ConnectionState.CLOSED:
            self.is_wanted = True
            if now_ms < self.suppressed_until_ms or self.last_error:
                return False  # the next notification tries again
            self._change(ConnectionState.CONNECTING, now_ms)
        return True

    def try_again(self, now_ms: int) -> bool:
        """Opens a closed connection for which something waits, unless it rests. Returns whether it does."""
        if self.state is not ConnectionState.CLOSED or not self.is_wanted or now_ms < self.suppressed_until_ms:
            return False
        self._change(ConnectionState.CONNECTING, now_ms)
        return True

    def connected(self, now_ms: int) -> None:
        """Notes that the attempt has succeeded."""
        self._change(ConnectionState.CONNECTED, now_ms)
        self.used_ms, self.is_wanted, self.last_error = now_ms, False, ""

    def lost(self, now_ms: int, reason: str, *, is_pending: bool = False) -> None:
        """Notes that the attempt has failed, or that the connection was lost.

        Args:
            now_ms: The instant.
            reason: The reason.
            is_pending: Whether something was still to be sent. Then it is opened again as soon as it has rested.
        """
        has_failed = self.state is ConnectionState.CONNECTING
        rest_ms = self.times.after_failure_ms if has_failed else self.times.after_disconnection_ms
        self.is_wanted |= is_pending
        self._change(ConnectionState.CLOSED, now_ms)
        self.suppressed_until_ms, self.last_error = now_ms + rest_ms, reason

    def is_idle(self, now_ms: int) -> bool:
        """Returns whether it is open and has not been used for long."""
        return self.state is ConnectionState.CONNECTED and now_ms >= self.used_ms + self.times.idle_ms

    def close_idle(self, now_ms: int) -> None:
        """Closes it; the next use opens it again."""
        self._change(ConnectionState.CLOSED, now_ms)

    def _change(self, state: ConnectionState, now_ms: int) -> None:
        self.state, self.since_ms = state, now_ms
