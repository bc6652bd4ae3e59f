"""The state of a connection to another instance: its opening, its rest after a failure, and its end when it is idle.

The times are those of Service Broker's transport ("Service Broker Periodic Tasks"). After a disconnection the
destination rests for 15 s, and after a failed attempt for 60 s. A connection that has been idle for 90 s is closed.
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
        after_disconnection_ms: How long a destination rests after a disconnection.
        after_failure_ms: How long a destination rests after a failed attempt to connect.
        idle_ms: How long a connection may be idle.
    """

    after_disconnection_ms: int = 15_000
    after_failure_ms: int = 60_000
    idle_ms: int = 90_000


@dataclass(slots=True)
class Connection:
    """A connection to an address. All instants are of one clock.

    Attributes:
        times: The times.
        state: The state.
        since_ms: When the state last changed.
        used_ms: When a program last had something to send.
        suppressed_until_ms: The end of the destination's rest.
        is_wanted: Whether a program has had something to send since the connection was closed.
        last_error: Why the connection was closed or could not be opened; empty without an error.
    """

    times: ConnectionTimes
    state: ConnectionState = ConnectionState.CLOSED
    since_ms: int = 0
    used_ms: int = 0
    suppressed_until_ms: int = 0
    is_wanted: bool = False
    last_error: str = ""

    def use(self, now_ms: int) -> bool:
        """Notes that a program has something to send. Returns whether the connection is open or being opened."""
        self.used_ms = now_ms
        if self.state is ConnectionState.CLOSED:
            self.is_wanted = True
            if now_ms < self.suppressed_until_ms or self.last_error:
                return False  # the next notification tries again
            self._change(ConnectionState.CONNECTING, now_ms)
        return True

    def try_again(self, now_ms: int) -> bool:
        """Opens a closed connection if a message waits and the destination does not rest. Returns whether it opens."""
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
            is_pending: Whether a message still waits. Then the connection is opened again when the rest is over.
        """
        has_failed = self.state is ConnectionState.CONNECTING
        rest_ms = self.times.after_failure_ms if has_failed else self.times.after_disconnection_ms
        self.is_wanted |= is_pending
        self._change(ConnectionState.CLOSED, now_ms)
        self.suppressed_until_ms, self.last_error = now_ms + rest_ms, reason

    def is_idle(self, now_ms: int) -> bool:
        """Returns whether the connection is open and has been idle for too long."""
        return self.state is ConnectionState.CONNECTED and now_ms >= self.used_ms + self.times.idle_ms

    def close_idle(self, now_ms: int) -> None:
        """Closes an idle connection. The next use opens it again."""
        self._change(ConnectionState.CLOSED, now_ms)

    def _change(self, state: ConnectionState, now_ms: int) -> None:
        self.state, self.since_ms = state, now_ms
