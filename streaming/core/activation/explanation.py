"""Explains in sentences why a queue monitor is in its state, and why no reader is requested."""

from dataclasses import dataclass

from streaming.core.activation.queue_monitor import Hindrance, State
from streaming.core.numbers import plural


@dataclass(frozen=True)
class Observed:
    """An observer's last report on the consumer group that reads a queue. The members report nothing themselves.

    Attributes:
        members: The number of members.
        one_more: Whether one more reader would have work; None: unknown.
        silent_since: When the observer last reported, if that was longer ago than the quiet window.
        is_running: Whether an observer runs; None: unknown.
        blind: The sentence that says why no observer can see the group's messages; empty without such a reason.
        as_of: When the monitor wrote the report, if that is known.
        members_now: The number of members at this moment; None: unknown. A known number replaces the reported number.
        unread_now: The number of unread messages at this moment; None: unknown.
    """

    members: int
    one_more: bool | None
    silent_since: str | None
    is_running: bool | None = None
    blind: str = ""
    as_of: str | None = None
    members_now: int | None = None
    unread_now: int | None = None

    def is_missing(self, unread: int) -> bool:
        """Returns whether a report is missing. Observers omit groups that have neither members nor unread messages."""
        return self.silent_since is not None and (self.members > 0 or unread > 0)

    def is_late(self, unread: int) -> bool:
        """Returns whether the report may be out of date, for example its number of unread messages."""
        return bool(self.blind) or self.is_running is False or self.is_missing(unread)

    def is_count_of_now(self, unread: int) -> bool:
        """Returns whether the report's number of unread messages is that of this moment, as far as this is known."""
        return not self.is_late(unread) and self.unread_now in (None, unread)

    def answer(self, unread: int) -> bool | None:
        """Returns whether one more reader would have work now; None: unknown, for example without an observer."""
        if self.is_running is False or self.blind:
            return None
        return False if self.silent_since is not None and not self.is_missing(unread) else self.one_more


@dataclass(frozen=True)
class Situation:
    """The facts about a queue, from its row of the monitors view. Times are texts; None means never.

    Attributes:
        state: The monitor's state; ABSENT without a monitor.
        is_on: The queue's STATUS.
        unread: The number of unread messages.
        waiting: The number of sessions that wait in RECEIVE.
        sequence: The last sequence. It is that of the last activation if no RECEIVE has answered that one.
        activated_at: When the queue was last activated; without an event notification, when a task was last requested.
        empty_at: When a RECEIVE last found nothing.
        next_check_at: When the monitor checks again without an event. None also means unknown, if `is_leased`.
        is_check_due: Whether `next_check_at` has passed.
        is_leased: Whether the queue has tasks or readers whose leases reports postpone.
        tasks_running: The number of running tasks of internal activation.
        max_queue_readers: The task limit; None without internal activation.
        failures: The number of tasks in a row that ended without a RECEIVE.
        next_start_at: When the next task is started after a failure.
        is_start_due: Whether `next_start_at` has passed.
        has_notifications: Whether the queue has an event notification.
        is_topic: Whether the queue is known to be a topic, so that its readers share its partitions.
        is_watched: Whether a monitor updates the row. Otherwise the last monitor has left the row in this state.
        gone: Why no monitor updates the row, as a sentence without its period.
        switch_on: The command line that sets the queue ON; None: it was given, and the monitor has not taken it yet.
        observed: An observer's report on the readers; None if the readers report themselves.
        off_by: The cause for which the queue is OFF, as a sentence; empty: unknown.
        reader: The activator's knowledge of the last requested reader, in words; empty: the reader may still come.
        hindrance: Why the monitor requests no reader; None: no monitor, or an older monitor has written the row.
        waiting_where: The number of sessions that wait with WHERE, and so do not take every message.
        written_at: When the monitor wrote the row, if a reader program has ended after that; None: no program has.
    """

    state: State
    is_on: bool
    unread: int
    waiting: int
    sequence: int
    activated_at: str | None
    empty_at: str | None
    next_check_at: str | None
    tasks_running: int
    max_queue_readers: int | None
    failures: int
    next_start_at: str | None
    has_notifications: bool
    is_topic: bool
    is_watched: bool
    switch_on: str | None
    gone: str = "No monitor runs"
    observed: Observed | None = None
    is_check_due: bool = False
    is_leased: bool = False
    is_start_due: bool = False
    reader: str = ""
    off_by: str = ""
    hindrance: Hindrance | None = None
    waiting_where: int = 0
    written_at: str | None = None

    @property
    def takers(self) -> int:
        """Returns the number of waiting sessions that would take any message."""
        return self.waiting - self.waiting_where

    @property
    def is_count_of_now(self) -> bool:
        """Returns whether the number of unread messages is up to date."""
        return self.is_watched and (self.observed is None or self.observed.is_count_of_now(self.unread))


def why(now: Situation) -> list[str]:
    """Returns sentences that say why the monitor is in its state, and which events would change the state."""
    return _state(now) if now.is_watched else [f"{now.gone}. This is as the last one has left it.", *_state(now)]


def _state(now: Situation) -> list[str]:
    if now.state is State.ABSENT:
        return _absent(now)
    if now.observed is not None and not (now.state is State.INACTIVE and now.takers > 0):
        return _observed(now, now.observed)
    if now.state is State.INACTIVE:
        return _inactive(now)
    if now.state is State.NOTIFIED:
        return _notified(now)
    return _receives_occurring(now)


def _absent(now: Situation) -> list[str]:
    if not now.is_on:
        return [
            "The queue is OFF: no notification is written, and no task is started; running readers continue. "
            f"{now.off_by or 'Five rollbacks in a row set a queue OFF, and so does a command.'} {_how_it_gets_on(now)}"
        ]
    return [
        "The queue has neither an event notification nor internal activation that is ON, so the monitor cannot request "
        "a reader."
    ]


def _how_it_gets_on(now: Situation) -> str:
    if now.switch_on is None:
        return "A later command sets it ON, once the monitor has taken the command."
    return f"`{now.switch_on}` sets it ON again."


def _inactive(now: Situation) -> list[str]:
    if now.takers > 0 and not now.is_watched:
        they_take = "it still does, it takes" if now.takers == 1 else "they still do, they take"
        return [f"{_none_unread(now)} {_who_waits(now)} in RECEIVE. If {they_take} the next message."]
    if now.takers > 0:
        return [
            f"{_none_unread(now)} {_who_waits(now)} in RECEIVE and would take the next message, so no "
            "reader has to be started: with a waiting reader, INACTIVE is the expected state."
        ]
    if now.max_queue_readers == 0 and not now.has_notifications:
        return [f"{_none_unread(now)} The next message starts no task, because max_queue_readers is 0."]
    if not now.is_watched:
        return [
            f"{_none_unread(now)} Messages that have come since activate the queue as soon as a monitor runs"
            f"{_unless_task(now)}."
        ]
    return [f"{_none_unread(now)} The next message activates the queue{_unless_task(now)}."]


def _none_unread(now: Situation) -> str:
    """Returns the sentence about a count of 0. The monitor does not know of messages that no program has reported."""
    return f"No reported message {_now_or_then(now, 'is', 'was')} unread."


def _unless_task(now: Situation) -> str:
    return "" if now.max_queue_readers is None else ", unless a task still runs"


def when(
    *, is_watched: bool, instant: str, is_due: bool, batches: str = "the monitor's", monitor: str = "a monitor"
) -> str:
    """Returns the words for when a monitor does work that is due at an instant.

    Args:
        is_watched: Whether a monitor may run.
        instant: The instant.
        is_due: Whether the instant has passed, because the monitor is late or does not run.
        batches: The owner of the batches, in the genitive.
        monitor: The name of the monitor in a sentence about a monitor that does not run.
    """
    if is_watched:
        return f"with one of {batches} next batches" if is_due else f"at {instant}"
    return f"as soon as {monitor} runs{'' if is_due else f', but not before {instant}'}"


def _looks(now: Situation, again: str, instant: str) -> str:
    at = when(is_watched=now.is_watched, instant=instant, is_due=now.is_check_due, batches="its", monitor="one")
    return f"{'the' if now.is_watched else 'a'} monitor looks {again} {at}"


def _next_look(now: Situation, instant: str) -> str:
    looks = _looks(now, "next", instant)
    return f"{looks[0].upper()}{looks[1:]}."


def _who_waits(now: Situation) -> str:
    if now.takers == 1:
        return f"A reader {_now_or_then(now, 'waits', 'waited')}"
    return f"{now.takers} readers {_now_or_then(now, 'wait', 'waited')}"


def _now_or_then(now: Situation, present: str, past: str) -> str:
    """Returns `present` if a monitor updates the row, and `past` if no monitor updates it any more."""
    return present if now.is_watched else past


def _notified(now: Situation) -> list[str]:
    answer = "RECEIVE" if now.observed is None else "new member"
    has = _now_or_then(now, "has", "had")
    most = now.max_queue_readers
    was_at = f"Activation {now.sequence} was at {now.activated_at}"
    if most is not None and not now.has_notifications:  # a task that fails is requested again
        was_at = f"A task was last requested at {now.activated_at}, for activation {now.sequence}"
    sentences = [f"{was_at}, and no {answer} {has} come since"]
    if now.reader and now.is_watched and now.written_at is not None:
        # The monitor is late. What the program reported before its end may still have to be read.
        sentences[0] = f"{was_at}, and no {answer} had come by {now.written_at}. By now, {now.reader}"
    elif now.reader:
        # `reader` is about the present. Without a monitor, the sentence before it is about the past.
        sentences[0] += f"{_now_or_then(now, ':', '. By now,')} {now.reader}"
    elif most is None:
        expected = "that reader is still expected, so no other is requested", "that reader was still expected"
        sentences[0] += f": {_now_or_then(now, *expected)}"
    sentences[0] += "."
    if now.unread <= 0:
        sentences.append(f"Nothing {'is' if now.is_count_of_now else 'was'} unread any more.")
    if now.failures and now.next_start_at is not None:
        start = when(is_watched=now.is_watched, instant=now.next_start_at, is_due=now.is_start_due)
        sentences.append(f"The task {has} failed. If no {answer} comes first, the next one starts {start}.")
    elif most is not None and now.tasks_running >= most:
        starts = _now_or_then(now, "No task is started before one ends", "No task was started before one ended")
        sentences.append(f"{starts}, because {_all_tasks(now)}.")
    elif now.next_check_at is not None:
        sentences.append(f"If no {answer} comes first, {_looks(now, 'again', now.next_check_at)}.")
    elif not now.is_leased:
        stays = _now_or_then(now, "stays so until", "was to stay so until")
        sentences.append(f"It {stays} a {answer} comes: its time-out never expires.")
    return sentences


def _receives_occurring(now: Situation) -> list[str]:
    sentences = [_now_or_then(now, "Readers receive.", "Readers received.")]
    if now.hindrance is Hindrance.READER_WAITS:
        sentences.append(_reader_waits(now))
    elif now.hindrance is Hindrance.NOTHING_UNREAD:
        sentences.append(f"Nothing {_now_or_then(now, 'is', 'was')} unread.")
    elif now.hindrance is Hindrance.TASK_LIMIT:
        work = _now_or_then(now, "have", "have had")
        sentences.append(f"One more would {work} work, but {_no_task(now)}.")
    elif now.hindrance is Hindrance.QUIET_WINDOW:
        waits = _now_or_then(now, "waits", "waited")
        once = f"once a quiet window has passed in which no reader found the queue empty, and none {waits}"
        sentences.append(_now_or_then(now, f"One more is requested {once}.", f"One more was to be requested {once}."))
    if now.hindrance in (Hindrance.QUIET_WINDOW, None) and now.next_check_at is not None:
        sentences.append(_next_look(now, now.next_check_at))
        if now.empty_at is not None:
            sentences.append(f"The last RECEIVE that found nothing was at {now.empty_at}.")
    return sentences


def _reader_waits(now: Situation) -> str:
    if not now.is_watched:
        although = f" although {now.unread:,} messages were unread" if now.takers < now.unread else ""
        return f"{_who_waits(now)} in RECEIVE{although}."
    if now.takers < now.unread:
        return _waiting_in_vain(now)
    return f"{_who_waits(now)} in RECEIVE and would take the next message, so one more would have no work."


def _no_task(now: Situation) -> str:
    """Returns why no task can be started."""
    if now.max_queue_readers is not None and now.tasks_running < now.max_queue_readers:
        return f"the monitor {_now_or_then(now, 'has', 'had')} no room to keep another task"
    return _all_tasks(now)


def _all_tasks(now: Situation) -> str:
    """Returns the sentence that the limit of tasks is reached. The monitor also counts tasks that no host has taken."""
    run = "runs or waits" if now.tasks_running == 1 else "run or wait"
    limit = f"max_queue_readers {_now_or_then(now, 'is', 'was')} {now.max_queue_readers}"
    return f"{limit}, and {plural(now.tasks_running, 'task')} {_now_or_then(now, run, 'ran or waited')} for a host"


def _waiting_in_vain(now: Situation) -> str:
    they, have, do, them = ("it", "has", "does", "it") if now.takers == 1 else ("they", "have", "do", "them")
    free = f"{they} {have} no partition with messages" if now.is_topic else f"nothing that is unread is free for {them}"
    return (
        f"{_who_waits(now)} in RECEIVE although {now.unread:,} messages are unread. If {they} {do} not take "
        f"them at once, {free}, and one more reader would have no work either."
    )


# a queue that is observed


def _observed(now: Situation, seen: Observed) -> list[str]:
    group = _group(now, seen)
    if seen.blind:  # the state is out of date, because no observer can see the group's messages
        return [group, seen.blind]
    if now.state is State.NOTIFIED:
        return [group, *_notified(now), *_answer(now, seen)]
    if now.state is State.INACTIVE and not seen.is_missing(now.unread):
        return [group, _nothing_for_group(now, seen)]
    sentences = [group, *_answer(now, seen)]
    if now.state is State.INACTIVE or seen.answer(now.unread) is not True:
        return sentences
    if now.hindrance is Hindrance.READER_WAITS:
        sentences.append(f"{_who_waits(now)} in RECEIVE, so no other {_now_or_then(now, 'is', 'was')} requested.")
    elif now.hindrance is Hindrance.TASK_LIMIT:
        task = _now_or_then(now, "No task is", "No task was")
        sentences.append(f"{task} started, because {_no_task(now)}.")
    else:
        if now.is_watched:
            sentences.append("One more is requested once the observer has said so for a whole quiet window.")
        if now.next_check_at is not None:
            sentences.append(_next_look(now, now.next_check_at))
    return sentences


def _group(now: Situation, seen: Observed) -> str:
    silent = "Its readers report nothing."
    members = plural(seen.members, "member") if seen.members else "no members"
    is_new = now.is_watched and seen.is_running is not False and seen.silent_since is None
    if is_new and seen.members_now in (None, seen.members):
        return f"{silent} An observer says that their consumer group has {members}."
    if seen.members_now is not None:
        return silent
    at = seen.silent_since or seen.as_of
    return f"{silent} An observer said that their consumer group had {members}{f' at {at}' if at else ''}."


def _answer(now: Situation, seen: Observed) -> list[str]:
    """Returns the sentence about the observer's answer; empty if the observer need not answer."""
    if (unheard := _unheard(seen, now.unread)) or seen.silent_since is not None:
        return [unheard] if unheard else []
    if not now.is_watched:
        return [f"The last that a monitor has heard of an observer was that {_ANSWERS[seen.one_more]}."]
    if seen.one_more is None:
        return [
            "The observer does not know whether one more reader would have work, for example because the group is "
            "rebalancing. None is requested before it says yes."
        ]
    only = " None is requested before it says yes."
    if seen.one_more:
        only = " Another one is requested only while it does." if now.state is State.NOTIFIED else ""
    return [f"The observer says that {_ANSWERS[seen.one_more]}.{only}"]


_ANSWERS = {
    True: "one more reader would have work",
    False: "one more reader would have no work",
    None: "it did not know whether one more reader would have work",
}


def _unheard(seen: Observed, unread: int) -> str:
    """Returns why no answer of an observer counts; empty if an answer counts, or if none is needed."""
    if seen.is_running is False:
        return "No observer runs. So it is unknown whether one more reader would have work, and none is requested."
    if not seen.is_missing(unread):
        return ""
    since = f"since {seen.silent_since}" if seen.members_now is not None else "since"
    heard = f"An observer runs, but has said nothing of this group {since}. Does an entry of its file name the group?"
    if not seen.is_running:
        heard = f"Nothing has been heard of an observer {since}."
    return f"{heard} So it is unknown whether one more reader would have work, and none is requested."


def _nothing_for_group(now: Situation, seen: Observed) -> str:
    """Returns the effect of the next message, or of a message that has come since the last look."""
    observer = "the observer" if seen.is_running is not False else "an observer runs and"
    nothing = f"There {'is' if now.is_count_of_now else 'was'} nothing to receive."
    if seen.members:
        has_said = "has said for a whole quiet window that it would have work"
        monitor = "" if now.is_watched else ", and a monitor runs"
        return f"{nothing} One more reader is requested once {observer} {has_said}{monitor}."
    monitor = "" if now.is_watched else " and a monitor runs"
    comes, it = (
        ("The next message activates", "it")
        if now.is_count_of_now
        else ("Messages that have come since activate", "them")
    )
    sentence = f"{nothing} {comes} the queue as soon as {observer} sees {it}{monitor}{_unless_task(now)}."
    if seen.silent_since is None or seen.is_running is False:
        return sentence
    return f"{sentence} An observer says nothing of a group that has neither members nor messages."
