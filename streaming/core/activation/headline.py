"""Says in one sentence why a reader is, or is not, started now, according to the monitor's last check."""

from streaming.core.activation.explanation import Situation, when
from streaming.core.activation.queue_monitor import Hindrance, Reason, State
from streaming.core.numbers import plural

# The instant of the next check has passed, but the monitor has not written a new row yet.
_LOOKS_AGAIN = " The monitor looks again with one of its next batches."


def headline(now: Situation, quiet_since: str | None, quiet_until: str | None) -> str:
    """Returns the sentence about a queue: why a reader is, or is not, started now.

    Args:
        now: The facts about the queue.
        quiet_since: When the quiet window began; None if that is unknown.
        quiet_until: When the quiet window ends; None outside a quiet window.
    """
    if not now.is_watched:
        return unwatched(now.gone)
    if now.state is State.ABSENT:
        nothing = "the queue has neither an event notification nor internal activation that is ON"
        return f"No reader is started: {nothing if now.is_on else 'the queue is OFF'}."
    if now.hindrance is Hindrance.UNANSWERED and not (now.observed is not None and now.observed.blind):
        return _unanswered(now)
    if unseen := _unseen(now):
        return f"No reader is started, because {unseen}."
    return _hindered(now, quiet_since, quiet_until)


def unwatched(gone: str) -> str:
    """Returns the sentence about a queue that no monitor watches.

    Args:
        gone: Why no monitor watches the queue, as a sentence without its period.
    """
    return f"No reader is started: {gone[0].lower()}{gone[1:]}."


def why_activated(reason: str | None, unread: int) -> str:
    """Returns the sentence about an activation: why one more reader had work.

    Args:
        reason: The name of the activation's Reason; None for the notification that the queue was set OFF.
        unread: The number of unread messages.
    """
    messages = f"{plural(max(0, unread), 'message')} {'was' if unread == 1 else 'were'} unread"
    if reason == Reason.MESSAGE_ARRIVED_ON_EMPTY_QUEUE.value:
        return f"A message arrived on the empty queue: {messages}, and nobody was about to read."
    if reason == Reason.MESSAGES_ACCUMULATING.value:
        return f"{messages}, no reader waited, and for a whole quiet window none had found the queue empty."
    if reason == Reason.TIMEOUT_EXPIRED.value:
        return f"{messages}, and the reader that was requested before had not come when its time-out expired."
    if reason is not None:
        return f"{messages}; the reason {reason} is not known here."
    return "The queue was set OFF after five rollbacks in a row."


def _unseen(now: Situation) -> str:
    """Returns why no observer sees the messages of the queue's consumer group; empty if an observer sees them."""
    seen = now.observed
    if seen is None:
        return ""
    if seen.blind:
        return "no observer can see the messages of its consumer group"
    return "no observer runs that would see the messages of its consumer group" if seen.is_running is False else ""


def _unanswered(now: Situation) -> str:
    requested = f"A reader was requested at {now.activated_at}"
    if now.reader and now.written_at is not None:
        answered = "called RECEIVE" if now.observed is None else "joined the consumer group"
        return f"{requested}, and had not {answered} by {now.written_at}. By now, {now.reader}."
    if now.reader:
        return f"{requested}, but {now.reader}."
    if now.failures and now.next_start_at is not None:
        start = when(is_watched=True, instant=now.next_start_at, is_due=now.is_start_due)
        last = "task" if now.failures == 1 else f"{now.failures} tasks"
        return f"{requested}, but the last {last} ended without a RECEIVE. The next one starts {start}."
    answered = "has not called RECEIVE yet" if now.observed is None else "has not joined the consumer group yet"
    if now.max_queue_readers is not None and now.tasks_running >= now.max_queue_readers:
        return f"{requested}, and {answered}. No other task is started until one exits: {_running(now)}."
    then = _LOOKS_AGAIN if now.is_check_due else " Until then no other reader is started."
    return f"{requested}, and {answered}.{then}"


def _hindered(now: Situation, quiet_since: str | None, quiet_until: str | None) -> str:
    waits = "a reader waits" if now.takers == 1 else f"{now.takers} readers wait"
    sentences = {
        Hindrance.NOTHING_UNREAD: "No reader is started, because nothing is unread.",
        Hindrance.NOT_WANTED: "No reader is started, because the observer does not say that one more would have work.",
        Hindrance.READER_WAITS: f"No reader is started, because {waits} in RECEIVE: one more would have no work.",
        Hindrance.TASK_LIMIT: f"One more reader would have work, but no task can be started: {_running(now)}.",
        Hindrance.QUIET_WINDOW: _quiet_window(now, quiet_since, quiet_until),
        None: "It is not known why no reader is started: an older monitor has written the row.",
    }
    return f"{sentences[now.hindrance]}{_LOOKS_AGAIN if now.is_check_due else ''}"


def _running(now: Situation) -> str:
    return f"{now.tasks_running} of at most {now.max_queue_readers or 0} run"


def _quiet_window(now: Situation, since: str | None, until: str | None) -> str:
    if until is None:
        return "No reader is started before the quiet window ends."
    began = "the result of a wait is on its way"
    if since is not None and since == now.empty_at:
        began = f"a reader found the queue empty at {since}"
    elif since is not None:
        began = f"readers began to receive at {since}"
    if now.is_check_due:
        return f"No reader was to be started before {until}, because {began}."
    return (
        f"No reader is started before {until}, because {began}. If no reader waits or finds the queue empty until "
        "then, one more is started, because messages accumulate."
    )
