"""The lines that commands print while they wait for a router."""

import time

from streaming.cli.lines import say
from streaming.cli.presence import last_sign
from streaming.kafka.access import AccessDeniedError
from streaming.kafka.admin import TooOldError
from streaming.kafka.clients import Cluster
from streaming.kafka.own_programs import absence
from streaming.wire.topics import Topics

_SAID_AFTER_S = 3.0


def router_absence(kafka: Cluster, topics: Topics) -> str | None:
    """Returns the sentence about a router that does not run; None if a router runs, or if this user may not look.

    Raises:
        UserError: Kafka cannot be reached.
    """
    try:
        return absence(kafka, topics, "router")
    except AccessDeniedError:
        return None


def has_router_run(kafka: Cluster, topics: Topics) -> bool:
    """Returns whether a router has ever committed a batch, or whether this is not known.

    Raises:
        UserError: Kafka cannot be reached.
    """
    try:
        return last_sign(kafka, topics, "router") is not None
    except (AccessDeniedError, TooOldError):
        return True


class Patience:
    """A wait of a command, which is announced once if it takes some seconds."""

    def __init__(self, what: str) -> None:
        """Begins the wait.

        Args:
            what: The rest of the line "waiting for ..."
        """
        self._what = what
        self._at_s = time.monotonic() + _SAID_AFTER_S

    def look(self) -> None:
        """Prints the line, once, if the wait has taken some seconds."""
        if time.monotonic() >= self._at_s:
            self._at_s = float("inf")
            say(f"waiting for {self._what}", err=True)
