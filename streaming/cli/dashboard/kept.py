"""Answers that take long to find: a thread asks anew while somebody watches, and pages show the last answer."""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from streaming.cli import lines
from streaming.errors import UserError
from streaming.system import hints, wall_clock
from streaming.system.threads import started

T = TypeVar("T")

# A page waits for an answer so long if it has none that is fresh.
_LONGEST_S = 20.0
_MOST = 20


@dataclass(frozen=True)
class Answer(Generic[T]):
    """An answer.

    Attributes:
        found: What was found.
        at_ms: When the search for it has ended.
        warnings: What could not be looked at, as sentences.
    """

    found: T
    at_ms: int
    warnings: list[str] = field(default_factory=list)


class Kept:
    """The last answers to some questions, each found anew after some time if somebody asks."""

    def __init__(
        self, every_s: float = 1.5, fresh_s: float = 20.0, silent_since_ms: Callable[[], int | None] = lambda: None
    ) -> None:
        """Begins without answers.

        Args:
            every_s: An answer is found anew after this time.
            fresh_s: It is shown for this time while the next one is looked for.
            silent_since_ms: Returns since when Kafka has not answered; None if it answers. While it is silent, nothing
                is asked, and the answers that were fresh then are shown: what was asked before fails, or finds little.
        """
        self._every_s = every_s
        self._fresh_s = fresh_s
        self._silent_since_ms = silent_since_ms
        self._questions: OrderedDict[str, _Question] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str, find: Callable[[], T]) -> Answer[T] | None:
        """Returns the last answer to a question; None: it is being looked for.

        Args:
            name: The question.
            find: Finds the answer.

        Raises:
            UserError: `find` has raised it, or Kafka is silent.
        """
        with self._lock:
            question = self._questions.setdefault(name, _Question(self._silent_since_ms))
            self._questions.move_to_end(name)
            while len(self._questions) > _MOST:
                self._questions.popitem(last=False)
        if (since_ms := self._silent_since_ms()) is not None:
            return question.kept(since_ms - round(self._fresh_s * 1000))
        return question.answer(find, self._every_s, self._fresh_s)


class _Question:
    """A question and its last answer."""

    def __init__(self, silent_since_ms: Callable[[], int | None]) -> None:
        self._silent_since_ms = silent_since_ms
        self._changed = threading.Condition()
        self._is_asked = False
        self._answered_s = -math.inf
        self._answer: Answer[object] | None = None
        self._error: BaseException | None = None

    def kept(self, from_ms: int) -> Answer[Any]:
        """Returns the last answer without looking for another; raises UserError if there is none since an instant."""
        with self._changed:
            if self._answer is None or self._answer.at_ms < from_ms:
                raise UserError("This was not known when Kafka last answered.")
            return self._answer

    def answer(self, find: Callable[[], T], every_s: float, fresh_s: float) -> Answer[T] | None:
        with self._changed:
            age_s = time.monotonic() - self._answered_s
            if age_s > fresh_s:
                self._answer = self._error = None
            if age_s >= every_s and not self._is_asked:
                self._is_asked = True
                started(lambda: self._ask(find))
            self._changed.wait_for(lambda: self._answer or self._error, _LONGEST_S)
            if self._error is not None:
                raise self._error
            return self._answer  # type: ignore[return-value]  # the same question has answers of the same type

    def _ask(self, find: Callable[[], T]) -> None:
        answer, error = None, None
        try:
            with hints.anew(), lines.noted() as warnings:
                found = find()
            answer = Answer[object](found, wall_clock.now_ms(), list(dict.fromkeys(warnings)))
        except Exception as raised:
            error = raised
        with self._changed:
            self._is_asked = False
            if self._answer is None or self._silent_since_ms() is None:
                # The last answer stays beside an error, for a silence that comes next.
                self._answer, self._error = answer or self._answer, error
                self._answered_s = time.monotonic()
            self._changed.notify_all()


# All readers of a page share what was computed for one of them.
_SHARED_S = 1.5
_MOST_SHARED = 50


class Shared:
    """Results that are computed once for all readers of a page, as they ask for them again and again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[Hashable, tuple[float, Any]] = {}

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Returns what was computed lately for a key, or computes it."""
        with self._lock:
            at_s, found = self._found.get(key, (0.0, None))
            if time.monotonic() - at_s < _SHARED_S:
                return found  # type: ignore[no-any-return]
        computed = compute()
        with self._lock:
            if len(self._found) >= _MOST_SHARED:
                self._found.pop(next(iter(self._found)))
            self._found[key] = time.monotonic(), computed
        return computed
