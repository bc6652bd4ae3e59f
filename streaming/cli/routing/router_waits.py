"""Says for commands that need a router whether one runs, and after some seconds what they wait for."""

import time

from streaming.cli.lines import say
from streaming.kafka.access import AccessDeniedError
from streaming.kafka.clients import Cluster
from streaming.kafka.own_programs import absence
from streaming.wire.topics import Topics

_SAID_AFTER_S = 3.0


def router_absence(kafka: Cluster, topics: Topics) -> str | None:
    """Returns the sentence about a router that does not run; None if one runs, or if this user may not look.

    Raises:
        UserError: Kafka cannot be reached.
    """
    try:
        return absence(kafka, topics, "router")
    except AccessDeniedError:
        return None


class Patience:
    """Says once, when a wait has become long, what a command waits for."""

    def __init__(self, what: str) -> None:
        """Begins the wait.

        Args:
            what: What the command waits for, after "waiting for".
        """
        self._what = what
        self._at_s = time.monotonic() + _SAID_AFTER_S

    def look(self) -> None:
        """Says it if it is time."""
        if time.monotonic() >= self._at_s:
            self._at_s = float("inf")
            say(f"waiting for {self._what}", err=True)
