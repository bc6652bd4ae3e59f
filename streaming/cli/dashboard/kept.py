"""Answers that take long to find: a thread asks anew while a page is open, and pages show the last answer."""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from streaming.cli import lines
from streaming.errors import UserError
from streaming.system import hints, wall_clock
from streaming.system.threads import started

T = TypeVar("T")

# The longest time for which a page waits for an answer if it has no fresh one.
_LONGEST_S = 20.0
_MOST = 20


class NotYetError(Exception):
    """No answer has come for as long as the page waits."""


@dataclass(frozen=True)
class Answer(Generic[T]):
    """An answer to a question, with the time of its search.

    Attributes:
        found: The result of the search.
        at_ms: The time at which the search has ended.
        warnings: Sentences about objects that could not be looked at.
    """

    found: T
    at_ms: int
    warnings: list[str] = field(default_factory=list)


@dataclass
class _Question:
    is_asked: bool = False
    answer: Answer[Any] | None = None
    found_s: float = -math.inf
    error: Exception | None = None
    failed_s: float = -math.inf


class Kept:
    """The last answers to some questions. Each answer is found anew after some time if a page asks."""

    def __init__(
        self,
        every_s: float = 1.5,
        fresh_s: float = 20.0,
        silent_since_ms: Callable[[], int | None] = lambda: None,
        longest_s: float | None = None,
    ) -> None:
        """Creates the object, which has no answers yet.

        Args:
            every_s: The time after which an answer is found anew.
            fresh_s: The time for which an answer is shown while the next search lasts, or fails.
            silent_since_ms: Returns since when Kafka has not answered; None if it answers. While Kafka is silent,
                nothing asks it, because questions fail then or find little. Answers that were fresh before are shown.
            longest_s: The longest time for which a page waits for an answer; None: as long as most pages.
        """
        self._every_s = every_s
        self._fresh_s = fresh_s
        self._silent_since_ms = silent_since_ms
        self._longest_s = longest_s
        self._questions: OrderedDict[str, _Question] = OrderedDict()
        self._changed = threading.Condition()

    def get(self, name: str, find: Callable[[], T]) -> Answer[T]:
        """Returns the last answer to a question, or waits for the first answer.

        Args:
            name: The question.
            find: Finds the answer.

        Raises:
            NotYetError: No answer has come in time.
            UserError: `find` has raised it and no answer is fresh, or Kafka is silent.
        """
        with self._changed:
            question = self._questions.setdefault(name, _Question())
            self._questions.move_to_end(name)
            if len(self._questions) > _MOST:
                self._questions.popitem(last=False)
            answer = self._fresh(question)
            if self._silent_since_ms() is not None:
                if answer is None:
                    raise UserError(
                        "The content of this page is not known. The dashboard looks for it only while the page is "
                        f"open, and found none in the {self._fresh_s:.0f} s before Kafka fell silent."
                    )
                return answer
            now_s, question.answer = time.monotonic(), answer
            if now_s - question.failed_s > self._fresh_s:
                question.error = None
            if not question.is_asked and now_s - max(question.found_s, question.failed_s) >= self._every_s:
                question.is_asked = True
                started(lambda: self._ask(question, find))
            self._changed.wait_for(
                lambda: question.answer or question.error, _LONGEST_S if self._longest_s is None else self._longest_s
            )
            if question.answer is not None:
                return question.answer
            raise question.error or NotYetError

    def last(self, name: str) -> Answer[Any] | None:
        """Returns the last answer to a question if the answer is fresh; asks nothing."""
        with self._changed:
            question = self._questions.get(name)
            return None if question is None else self._fresh(question)

    def _fresh(self, question: _Question) -> Answer[Any] | None:
        """Returns the answer to a question; None if it is not fresh, or was not fresh when Kafka fell silent."""
        since_ms, answer = self._silent_since_ms(), question.answer
        if since_ms is None or answer is None:
            return answer if time.monotonic() - question.found_s <= self._fresh_s else None
        return answer if answer.at_ms >= since_ms - self._fresh_s * 1000 else None

    def _ask(self, question: _Question, find: Callable[[], Any]) -> None:
        answer, error = None, None
        try:
            with hints.anew(), lines.noted() as warnings:
                answer = Answer(find(), wall_clock.now_ms(), list(dict.fromkeys(warnings)))
        except Exception as raised:
            error = raised
        with self._changed:
            question.is_asked = False
            if error is not None:
                question.error, question.failed_s = error, time.monotonic()
            elif question.answer is None or self._silent_since_ms() is None:
                question.answer, question.found_s = answer, time.monotonic()
                question.error = None
            self._changed.notify_all()
