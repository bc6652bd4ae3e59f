"""Notices that a topic is deleted, or deleted and created again, while a query reads it.

Spark knows a topic only by its name and offsets. Without this watch, Spark would silently skip records, including
ticks, until the new topic outgrows the old offset.
"""

import logging
import time
from collections.abc import Callable, Mapping

from streaming.errors import UserError
from streaming.kafka.access import RightMissingError
from streaming.kafka.admin import Admin
from streaming.system import hints
from streaming.wire.topics import Topics

INTERVAL_S = 10.0
# The main thread waits for the answer, and must notice Ctrl-C.
_TIMEOUT_S = 1.0
_TICKS = Topics().ticks
_log = logging.getLogger(__name__)


def replaced_topics(known: Mapping[str, str], found: Mapping[str, str]) -> str | None:
    """Returns a message about topics whose ids are no longer those of the checkpoint; None if there are none.

    The text continues a sentence such as "topics were".
    """
    replaced = replaced_names(known, found)
    return monitors_advice(replaced) if replaced else None


def replaced_names(known: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Returns the topics that no longer have the known ids."""
    return sorted(name for name, topic_id in known.items() if found.get(name) != topic_id)


def monitors_advice(replaced: list[str]) -> str:
    """Returns a text about topics of a monitor that were replaced; it continues a sentence such as "Topics were"."""
    what = f"deleted, or deleted and created again: {', '.join(replaced)}."
    if all(name.endswith(_TICKS) for name in replaced):
        return (
            f"{what} The checkpoint's offsets are not valid in a new topic; the rest of the checkpoint is. Start with "
            f"another {hints.option('--checkpoint-location', names_table=False)}, and set "
            f"{hints.option('--continue-from')} to the old one."
        )
    return (
        f"{what} Their records are lost, and the checkpoint's offsets are not valid in a new topic. Start with another "
        f"{hints.option('--checkpoint-location')}: the monitor then reads from the start what the topics hold."
    )


class TopicWatch:
    """Compares the ids of the topics with the known ids, once per `INTERVAL_S`.

    It also logs once when Kafka does not answer, and once when Kafka is back. These lines replace the warnings of each
    of Spark's clients.
    """

    def __init__(
        self, admin: Admin, known: Mapping[str, str], advice: Callable[[list[str]], str] = monitors_advice
    ) -> None:
        """Stores the ids that the topics have now.

        Args:
            admin: Kafka's administration.
            known: Topic -> id.
            advice: Returns the text about topics that were replaced.
        """
        self._admin = admin
        self._known = known
        self._advice = advice
        self._next_look_s = 0.0
        self._problem: str | None = None
        self._is_kafka_away = False

    def problem(self) -> str | None:
        """Returns the problem of the topics, from a look at most `INTERVAL_S` old; None if no problem is known."""
        now_s = time.monotonic()
        if now_s < self._next_look_s:
            return self._problem
        self._next_look_s = now_s + INTERVAL_S
        return self.problem_now()

    def problem_now(self) -> str | None:
        """Returns the problem of the topics now; None if there is none, or if Kafka does not answer.

        A problem that was found once remains, because the skipped records are lost.
        """
        if self._problem is None:
            try:
                found = self._admin.topic_ids(self._known, _TIMEOUT_S)
            except RightMissingError:
                pass  # waiting does not help; if the query needs the right, it ends with the reason
            except UserError as error:
                self._note_outage(error)
            else:
                self._note_answer()
                replaced = replaced_names(self._known, found)
                self._problem = self._advice(replaced) if replaced else None
        return self._problem

    def _note_outage(self, reason: UserError) -> None:
        if not self._is_kafka_away:
            self._is_kafka_away = True
            _log.warning("Batches wait until Kafka answers: %s", reason)

    def _note_answer(self) -> None:
        if self._is_kafka_away:
            self._is_kafka_away = False
            _log.info("Kafka answers again")
