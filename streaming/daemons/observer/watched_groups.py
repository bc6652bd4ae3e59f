"""The groups that an observer watches. Looks at groups that may have changed, and returns the reports."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from streaming.core.numbers import plural
from streaming.core.observer.logs import Logs
from streaming.core.observer.pictures import GroupPicture, GroupState, place_name
from streaming.core.observer.verdict import Verdict
from streaming.core.observer.watched_group import Report, WatchedGroup
from streaming.daemons.activator.config import Config
from streaming.daemons.observer.counts import Counts
from streaming.daemons.observer.empty_groups import EmptyGroups
from streaming.daemons.observer.entries import watches
from streaming.daemons.observer.settings import ObserverSettings
from streaming.daemons.observer.watched import Watched
from streaming.kafka.group_looks import GroupLooks, monotonic_ms
from streaming.kafka.phantom_probe import PhantomProbe, Tested

# A full look finds new groups, new partitions, and new beginnings of logs at this interval.
_FULL_LOOK_INTERVAL_MS = 10_000
# A look waits this long for the tests of backlogs. A test that takes longer goes on in the next look.
_PROBE_S = 0.2
# If an answer stays unknown for this long, for example because members commit nothing, the observer says so.
_LONG_UNKNOWN_MS = 60_000
_MAX_NAMES = 10


class WatchedGroups:
    """The groups that an observer watches."""

    def __init__(
        self,
        settings: ObserverSettings,
        looks: GroupLooks,
        probe: PhantomProbe,
        counts: Counts,
        say: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._looks = looks
        self._probe = probe
        self._counts = counts
        self._say = say
        self._by_name: dict[str, Watched] = {}
        self._refused: dict[str, str] = {}
        self._logs = Logs()
        self._empty = EmptyGroups(looks, self._logs, self._hint)
        self._asked: set[str] = set()
        self._looked_ms: int | None = None

    def look(self, config: Config, *, is_changed: bool = False) -> list[tuple[str, Report]]:
        """Looks once. Returns the reports that are due, with their queues.

        Args:
            config: The file with the groups.
            is_changed: Whether the file has changed since the last look.

        Raises:
            UserError: Kafka does not answer.
        """
        begin_ms = monotonic_ms()
        is_full = is_changed or self._looked_ms is None or begin_ms - self._looked_ms >= _FULL_LOOK_INTERVAL_MS
        if is_full:
            self._find(config)
            self._looks.kept_offsets.look()
            due, moved = self._by_name, self._asked
        else:
            moved = self._looks.see_ends(self._asked, self._logs)
            due = {name: each for name, each in self._by_name.items() if each.is_active or each.topics() & moved}
        before = {name: each.picture for name, each in due.items()}
        for name, picture in self._looks.pictures({name: each.watch.kind for name, each in due.items()}).items():
            due[name].picture = picture
        self._see_logs(due.values(), is_full)
        if (denials := self._looks.new_denials()) is not None:
            self._say(denials)
        for name, each in due.items():
            each.found = each.group.look(each.picture, self._logs, monotonic_ms())
            self._tell_of_commits(name, before[name], each.picture)
            if each.picture.state is GroupState.EMPTY and not each.topics():
                self._hint(each, name, "has committed nothing: name its topics in its entry, with `topics`")
        self._test(due, is_full)
        self._empty.look(self._by_name)
        self._looked_ms = begin_ms if is_full else self._looked_ms
        self._count(due)
        return self._reports(due)

    def not_sent(self, queue: str, report: Report) -> None:
        """Notes that Kafka has not taken a report. The next look makes a new report."""
        for each in self._by_name.values():
            if each.watch.queue == queue:
                each.group.not_sent(report)

    def _find(self, config: Config) -> None:
        """Finds the groups to watch."""
        found = watches(config, self._looks.kinds(), self._settings)
        is_new = found.by_group.keys() != self._by_name.keys() or self._looked_ms is None
        for name in self._by_name.keys() - found.by_group.keys():
            del self._by_name[name]
        for name, watch in found.by_group.items():
            known = self._by_name.get(name)
            if known is None or known.watch.queue != watch.queue:
                self._by_name[name] = Watched(watch, WatchedGroup(watch.settings))
            else:
                known.watch, known.group.settings = watch, watch.settings
        if is_new:
            names = ", ".join(sorted(self._by_name)[:_MAX_NAMES])
            rest = ", ..." if len(self._by_name) > _MAX_NAMES else ""
            self._say(f"watches {plural(len(self._by_name), 'consumer group')}{': ' if names else ''}{names}{rest}")
        for name, why in found.refused.items():
            if self._refused.get(name) != why:
                self._say(f"{name}: not watched: {why}")
        self._refused = dict(found.refused)

    def _see_logs(self, groups: Iterable[Watched], is_full: bool) -> None:
        """Looks at the logs of all topics in a full look, and otherwise at the logs of new topics."""
        topics = {topic for each in groups for topic in each.topics()}
        new = topics if is_full else topics - self._asked
        self._asked = topics if is_full else self._asked | new
        for topic in self._looks.see_topics(new, self._logs):
            self._say(f"topic {topic} was deleted, or made again")
            for each in self._by_name.values():
                each.group.phantoms.forget(topic)
        self._looks.see_logs(new, self._logs)

    def _test(self, due: dict[str, Watched], is_full: bool) -> None:
        """Tests the backlogs that may be phantoms. Only a full look tests again what the user might not read before."""
        again = {name: each for name, each in due.items() if is_full and each.group.phantoms.is_denied}
        for each in again.values():
            self._look_again(each, is_denied=False)
        to_test = {name: each.found.to_test for name, each in due.items() if each.found is not None}
        found = self._probe.test(to_test, _PROBE_S)
        self._counts.probes += len(found)
        for name, tested in found.items():
            each = due[name]
            each.group.phantoms.probed(tested.place, tested.result)
            self._look_again(each, is_denied=each.group.phantoms.is_denied)
            self._tell_of_test(each, name, tested)
        for name, each in again.items():
            if name not in found or (each.found is not None and each.found.to_test):
                self._look_again(each, is_denied=True)  # until all of its backlog is tested

    def _look_again(self, each: Watched, *, is_denied: bool) -> None:
        each.group.phantoms.is_denied = is_denied
        again = each.group.look(each.picture, self._logs, monotonic_ms())
        each.found = replace(again, received=each.found.received if each.found is not None else 0)

    def _reports(self, due: dict[str, Watched]) -> list[tuple[str, Report]]:
        reports = []
        for name, each in due.items():
            now_ms = monotonic_ms()
            if each.found is None:
                continue
            self._tell_answer(name, each, each.found.verdict, now_ms)
            if (report := each.group.report(each.found, now_ms)) is not None:
                reports.append((each.watch.queue, report))
        return reports

    def _tell_answer(self, name: str, each: Watched, verdict: Verdict, now_ms: int) -> None:
        if verdict.one_more is None:
            since_ms = each.unknown_since_ms = now_ms if each.unknown_since_ms is None else each.unknown_since_ms
            if now_ms - since_ms >= _LONG_UNKNOWN_MS:
                self._hint(each, name, f"one more: unknown for {_LONG_UNKNOWN_MS // 1000} s, {verdict.reason}")
            return
        each.unknown_since_ms = None
        if verdict.one_more is not each.told:
            each.told = verdict.one_more
            self._say(f"{name}: one more: {'yes' if verdict.one_more else 'no'}, {verdict.reason}")

    def _tell_of_commits(self, name: str, before: GroupPicture, now: GroupPicture) -> None:
        back = [
            f"{place_name(place)} from {before.committed[place]} to {offset}"
            for place, offset in sorted(now.committed.items())
            if offset < before.committed.get(place, 0)
        ]
        if back:
            rest = ", ..." if len(back) > _MAX_NAMES else ""
            self._say(f"{name}: offsets were set back: {', '.join(back[:_MAX_NAMES])}{rest}")

    def _tell_of_test(self, each: Watched, name: str, tested: Tested) -> None:
        place, result = tested.place, tested.result
        denied = f"may not read {place[0]}, so offsets without content count as messages"
        if result.is_denied:
            self._hint(each, name, denied)
            return
        if each.takes_back(denied):
            self._say(f"{name}: may read {place[0]} now, so offsets without content no longer count as messages")
        if result.found is None:
            self._counts.phantoms += 1
            self._hint(each, name, f"{place_name(place)} holds only offsets without content from {result.begin} on")

    def _hint(self, each: Watched, name: str, text: str) -> None:
        """Says a sentence about a group, but each sentence only once."""
        if each.is_new_hint(text):
            self._say(f"{name}: {text}")

    def _count(self, due: dict[str, Watched]) -> None:
        counts = self._counts
        counts.groups, counts.refused = len(self._by_name), len(self._refused)
        counts.looked_at += len(due)
        counts.unknown = sum(each.is_unknown for each in self._by_name.values())
        counts.wanted = sum(
            each.found is not None and each.found.verdict.one_more is True for each in self._by_name.values()
        )
        counts.backlog = sum(each.found.unread for each in self._by_name.values() if each.found is not None)
