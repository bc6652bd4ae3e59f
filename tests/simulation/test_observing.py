"""A consumer group that knows nothing of this project, an observer and the core, through hours of trouble.

Senders, aborted transactions, members that work at any speed and commit as they like, members that are stuck, killed
and leave, rebalances, and an observer that is restarted or away. With members, nobody is asked for unless one more
would have had work; and if one more has work for long, somebody is asked for.
"""

from random import Random

import pytest

from streaming.core.activation.events import GroupObserved
from streaming.core.observer.logs import LONGEST_LATE_AFTER_MS, Logs
from streaming.core.observer.phantoms import Probed
from streaming.core.observer.watched_group import WatchedGroup
from tests.support.histories import MINUTE, SECOND, T, Timeline, W
from tests.support.plain_group_in_memory import TOPICS, PlainGroup, PlainMember
from tests.support.seeds import seeds

# The last one finds a rule that takes the partitions of one owner under `range` for work of one more.
FIXED_SEEDS = (*range(1, 19), 131_621_707)
STEPS = 5_000
LOOK_MS = 500
# A stall of a minute, the quiet window, the suppression, and a window that useless readers have lengthened once.
PATIENCE_MS = LONGEST_LATE_AFTER_MS + 3 * W + T + MINUTE
NEWS_MS = LONGEST_LATE_AFTER_MS + 2 * W


class World:
    """The group, the observer that looks at it, and the queue that the monitor makes of it."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)  # noqa: S311  (no secret)
        topics = TOPICS[: random.randint(1, 2)]
        partitions = {topic: random.randint(1, 5 if len(topics) == 1 else 3) for topic in topics}
        self.group = PlainGroup(random, partitions, random.choice(("cooperative-sticky", "range")))
        self.timeline = Timeline()
        self.now_ms = 0
        self.numbers = iter(range(10**9))
        self.observed, self.logs = WatchedGroup(), Logs()
        self.away_until_ms = self.reported_ms = 0
        self.sends = random.choice((0.01, 0.1, 0.6))
        self.is_fast = random.random() < 0.4
        self.commit_ms = random.choice((0, SECOND, 5 * SECOND, 10 * SECOND))  # all members are the same program
        # Since when one more has had work while the observer could see it; and when one more last had work.
        self.wanted_since_ms: int | None = None
        self.last_wanted_ms = -PATIENCE_MS

    def run(self) -> None:
        """Runs the world step by step, and checks each activation, and that none is missing."""
        for _ in range(STEPS):
            self.now_ms += LOOK_MS
            self.happen()
            self.group.work(self.now_ms, LOOK_MS)
            self.look_at_truth()
            if self.now_ms >= self.away_until_ms:
                self.observe()
            self.check_activations()

    def happen(self) -> None:
        """Lets messages come, members come and go, or the observer be away."""
        random, group = self.random, self.group
        if random.random() < self.sends:
            place = random.choice([*group.ends])
            group.send(place, random.choice((1, 1, 5, 50)), is_aborted=random.random() < 0.2)
        if random.random() < 0.002 and len(group.members) < 3:
            self.start_member()
        if group.members and random.random() < 0.003:
            group.leave(random.choice(group.members), self.now_ms, is_killed=random.random() < 0.5)
        if random.random() < 0.001:
            self.observed, self.logs = WatchedGroup(), Logs()
            self.away_until_ms = self.now_ms + random.choice((0, SECOND, 20 * SECOND, 10 * MINUTE))

    def start_member(self) -> None:
        random = self.random
        speed = 1e9 if self.is_fast else random.choice((0.0, 0.2, 2.0, 50.0, 1e9))
        idle_ms = random.choice((None, 5 * SECOND, 30 * SECOND))
        self.group.join(PlainMember(f"m{next(self.numbers)}", speed, self.commit_ms, idle_ms), self.now_ms)

    def look_at_truth(self) -> None:
        is_wanted = self.group.one_more_has_work()
        is_hidden = self.now_ms < self.away_until_ms or self.group.is_rebalancing(self.now_ms)
        if is_wanted:
            self.last_wanted_ms = self.now_ms
        if not is_wanted or is_hidden or self.is_silent_about_commits():
            self.wanted_since_ms = None
        elif self.wanted_since_ms is None:
            self.wanted_since_ms = self.now_ms

    def is_silent_about_commits(self) -> bool:
        """Returns whether some member is stuck: whether its group works is unknown then, or known only from before."""
        return any(member.per_second < 1 for member in self.group.members)

    def observe(self) -> None:
        """Looks as the observer does, and reports to the core."""
        for place, end in self.group.ends.items():
            self.logs.seen(place, 0, end, self.now_ms)
        found = self.observed.look(self.group.picture(self.now_ms), self.logs, self.now_ms)
        for place, begin in found.to_test:
            content = next((offset for offset in self.group.contents[place] if offset >= begin), None)
            until = self.group.ends[place] if content is None else content
            self.observed.phantoms.probed(place, Probed(begin, until, content))
        if found.to_test:
            again = self.observed.look(self.group.picture(self.now_ms), self.logs, self.now_ms)
            found = again
        report = self.observed.report(found, self.now_ms)
        if report is not None:
            self.reported_ms = self.now_ms
            event = GroupObserved(report.unread, report.one_more, report.members, report.received)
            self.timeline.at(self.now_ms, event)

    def check_activation(self) -> None:
        assert self.now_ms - self.reported_ms <= W + LOOK_MS, "an observer that is silent has not said yes"
        if self.group.members:
            late_ms = self.now_ms - self.last_wanted_ms
            assert late_ms <= NEWS_MS, f"one more last had work {late_ms} ms ago"
            assert not self.is_fast, "members that keep up are never helped"
        elif not self.group.is_rebalancing(self.now_ms):
            assert self.group.one_more_has_work(), "nobody is asked for to read offsets without content"

    def check_activations(self) -> None:
        if self.timeline.queue_if_any is None:
            return
        before = len(self.timeline.written)
        self.timeline.run_until(self.now_ms + 1)
        times = self.timeline.activation_times()
        if times and times[-1] > self.now_ms - LOOK_MS:
            self.check_activation()
        if len(self.timeline.written) > before or (times and times[-1] > self.now_ms - LOOK_MS):
            self.wanted_since_ms = None
            if self.random.random() < 0.8 and len(self.group.members) < 4:
                self.start_member()
        elif self.wanted_since_ms is not None:
            waited_ms = self.now_ms - self.wanted_since_ms
            assert waited_ms <= PATIENCE_MS, f"one more has had work for {waited_ms} ms"


@pytest.mark.parametrize("seed", seeds("OBSERVING_SEED", FIXED_SEEDS))
def test_somebody_is_asked_for_if_and_only_if_one_more_has_work(seed: int) -> None:
    print(f"OBSERVING_SEED={seed} pytest {__file__}")  # noqa: T201  (shown if the test fails)
    World(seed).run()
