"""Notices that a topic is deleted, or deleted and created again, while the monitor reads it.

Spark goes by offsets and takes a new topic for the old one: what was sent before the new topic is as long as the old
one was would be passed over without a word.
"""

import time
from collections.abc import Mapping

from streaming.admin import Admin
from streaming.errors import UserError

INTERVAL_S = 10.0
# The main thread asks, and must hear Ctrl-C.
_TIMEOUT_S = 1.0


class TopicWatch:
    """Asks Kafka for the topics' ids now and then."""

    def __init__(self, admin: Admin, known: Mapping[str, str]) -> None:
        """Takes the ids the topics have now."""
        self._admin = admin
        self._known = known
        self._next_look_s = 0.0

    def problem(self) -> str | None:
        """What is wrong with the topics, by a look that is at most `INTERVAL_S` old; None: nothing, or not known."""
        now_s = time.monotonic()
        if now_s < self._next_look_s:
            return None
        self._next_look_s = now_s + INTERVAL_S
        return self.problem_now()

    def problem_now(self) -> str | None:
        """What is wrong with the topics; None: nothing, or Kafka does not answer, which is not this watch's affair."""
        try:
            return replaced_topics(self._known, self._admin.topic_ids(self._known, _TIMEOUT_S))
        except UserError:
            return None


def replaced_topics(known: Mapping[str, str], found: Mapping[str, str]) -> str | None:
    """What to say of topics that do not have the ids any more that the checkpoint's offsets belong to; None: all do."""
    replaced = sorted(name for name, topic_id in known.items() if found.get(name) != topic_id)
    if not replaced:
        return None
    return (
        f"deleted since, or deleted and created again: {', '.join(replaced)}. What was in there is gone, and the "
        "checkpoint's offsets mean nothing in a new topic. Start with another --checkpoint-location: the monitor then "
        "reads from the start what the topics hold"
    )
