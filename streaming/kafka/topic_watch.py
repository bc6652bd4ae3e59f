"""Notices that a topic is deleted, or deleted and created again, while the monitor reads it.

Spark goes by offsets and takes a new topic for the old one: what was sent before the new topic is as long as the old
one was would be passed over without a word, ticks too.
"""

import time
from collections.abc import Mapping
from contextlib import suppress

from streaming.errors import UserError
from streaming.kafka.admin import Admin
from streaming.wire.topics import Topics

INTERVAL_S = 10.0
# The main thread asks, and must hear Ctrl-C.
_TIMEOUT_S = 1.0
_TICKS = Topics().ticks


class TopicWatch:
    """Asks Kafka for the topics' ids now and then."""

    def __init__(self, admin: Admin, known: Mapping[str, str]) -> None:
        """Takes the ids the topics have now."""
        self._admin = admin
        self._known = known
        self._next_look_s = 0.0
        self._problem: str | None = None

    def problem(self) -> str | None:
        """Returns what is wrong with the topics, by a look that is at most `INTERVAL_S` old; None: nothing is known."""
        now_s = time.monotonic()
        if now_s < self._next_look_s:
            return self._problem
        self._next_look_s = now_s + INTERVAL_S
        return self.problem_now()

    def problem_now(self) -> str | None:
        """Returns what is wrong with the topics; None: nothing, or Kafka does not answer, which is not its affair.

        What was wrong once stays so: what was missed is gone.
        """
        if self._problem is None:
            with suppress(UserError):
                self._problem = replaced_topics(self._known, self._admin.topic_ids(self._known, _TIMEOUT_S))
        return self._problem


def replaced_topics(known: Mapping[str, str], found: Mapping[str, str]) -> str | None:
    """What to say of topics that do not have the ids any more that the checkpoint's offsets belong to; None: all do."""
    replaced = sorted(name for name, topic_id in known.items() if found.get(name) != topic_id)
    if not replaced:
        return None
    what = f"deleted since, or deleted and created again: {', '.join(replaced)}."
    if all(name.endswith(_TICKS) for name in replaced):
        return (
            f"{what} The checkpoint's offsets mean nothing in a new topic. All else of the checkpoint is good: start "
            "with another --checkpoint-location, and --continue-from with this one"
        )
    return (
        f"{what} What was in there is gone, and the "
        "checkpoint's offsets mean nothing in a new topic. Start with another --checkpoint-location: the monitor then "
        "reads from the start what the topics hold"
    )
