"""Asks about consumer groups until the answers are known: looks at them, tests their backlogs, and looks again."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from streaming.cli.meant import did_you_mean
from streaming.core.observer.expiry import KeptFrom
from streaming.core.observer.logs import Logs
from streaming.core.observer.pictures import GroupPicture, GroupState, Member, Place
from streaming.core.observer.question import Answer, Question
from streaming.core.observer.verdict import Verdict
from streaming.errors import UserError
from streaming.kafka.clients import Cluster
from streaming.kafka.group_looks import GroupKind, GroupLooks
from streaming.kafka.phantom_probe import PhantomProbe
from streaming.wire.own_groups import is_own_group

_LOOK_INTERVAL_S = 0.5
# The longest time for testing all backlogs.
_PROBE_S = 5.0
# The defaults of KEDA's scaler for Kafka: a reader for each 5 messages, but no more than partitions.
KEDA_LAG_THRESHOLD = 5

_SHARE = Verdict(None, "a share group: Kafka tells no client how many messages wait in it")


@dataclass(frozen=True)
class Finding:
    """The answer about one group.

    Attributes:
        name: The group.
        kind: Its protocol.
        state: Its state.
        members: The number of its members.
        answer: The answer.
        phantom: Whether the offsets of its backlog have no content; None if this was not tested.
        lag_rule_readers: The number of readers that a lag rule would want.
        kept_from: The event from which Kafka counts how long it keeps the offsets; None if they do not expire.
        kept_ms: How long Kafka keeps the offsets from that event; None if the time is not known.
        partitions: All partitions that the group reads or has committed.
        owners: Partition -> the member that owns it.
    """

    name: str
    kind: GroupKind
    state: GroupState
    members: int
    answer: Answer
    phantom: bool | None = None
    lag_rule_readers: int | None = None
    kept_from: KeptFrom | None = None
    kept_ms: int | None = None
    partitions: tuple[Place, ...] = ()
    owners: Mapping[Place, Member] = field(default_factory=dict)

    @property
    def backlog(self) -> int:
        """Returns the number of messages that are not committed."""
        return sum(each.backlog for each in self.answer.waiting)


class GroupSurvey:
    """Asks about all groups of a cluster, or about one group.

    Attributes:
        left_out: The number of groups of our own programs that the survey leaves out, because the user names
            none of them.
    """

    def __init__(self, cluster: Cluster, only: str | None) -> None:
        """Connects.

        Raises:
            UserError: Kafka cannot be reached, or refuses.
        """
        self._looks = GroupLooks(cluster)
        self._probe = PhantomProbe(cluster)
        self._only = only
        self.left_out = 0
        self._logs = Logs()
        self._kinds: dict[str, GroupKind] = {}
        self._open: dict[str, Question] = {}
        self._findings: dict[str, Finding] = {}

    def close(self) -> None:
        """Closes the connections."""
        self._probe.close()
        self._looks.close()

    def new_denials(self) -> str | None:
        """Returns the sentence about missing rights; None if no further right was missing since the last call."""
        return self._looks.new_denials()

    def ask(self, limit_s: float, progress: Callable[[int, float], None]) -> list[Finding]:
        """Returns the answers about all groups, in order of names.

        Args:
            limit_s: How long to watch groups for which a single look gives no answer.
            progress: Takes the number of groups that are watched, and the seconds that are left.

        Raises:
            UserError: There is no such group, or Kafka does not answer.
        """
        end_s = time.monotonic() + limit_s
        self.begin()
        while self.look():
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                break
            progress(len(self._open), left_s)
            time.sleep(min(_LOOK_INTERVAL_S, left_s))
        self.settle(limit_s)
        return self.findings()

    def begin(self) -> None:
        """Begins a new survey. Raises as `ask` does."""
        self._kinds, self._logs = self._present_kinds(), Logs()
        self._looks.kept_offsets.look()
        self._open = {name: Question() for name, kind in self._kinds.items() if kind is not GroupKind.SHARE}
        nothing = Answer(_SHARE, [])
        self._findings = {
            name: Finding(name, kind, GroupState.UNKNOWN, 0, nothing) for name, kind in self._kinds.items()
        }

    def look(self) -> bool:
        """Looks at groups whose answers may still change. Returns whether such groups exist. Raises as `ask` does."""
        if self._open:
            self._look(self._open)
        self._open = {name: each for name, each in self._open.items() if not self._findings[name].answer.is_final}
        return bool(self._open)

    def settle(self, watched_s: float) -> None:
        """Replaces answers that are not final by the answers after this time of watching; 0: after a single look."""
        for name, question in self._open.items():
            self._findings[name] = _closed(self._findings[name], question, watched_s)

    def findings(self) -> list[Finding]:
        """Returns the answers so far, in order of names."""
        return [self._findings[name] for name in sorted(self._findings)]

    def _present_kinds(self) -> dict[str, GroupKind]:
        kinds = self._looks.kinds()
        if self._only is None:
            others = {name: kind for name, kind in kinds.items() if not is_own_group(name)}
            self.left_out = len(kinds) - len(others)
            return others
        if self._only not in kinds:
            meant = did_you_mean(self._only, (each for each in kinds if not is_own_group(each)))
            raise UserError(f"There is no consumer group {self._only}, or this user may not see it.{meant}")
        return {self._only: kinds[self._only]}

    def _look(self, questions: dict[str, Question]) -> None:
        """Looks at groups, and stores the findings."""
        kinds, logs = self._kinds, self._logs
        pictures = self._looks.pictures({name: kinds[name] for name in questions})
        topics = {topic for picture in pictures.values() for topic in _topics(picture)}
        known = {topic for topic in topics if logs.partitions_of(topic) and logs.missing([topic]) is None}
        # The beginnings and the number of partitions hardly change during one question.
        self._looks.see_ends(known, logs)
        self._looks.see_topics(topics - known, logs)
        self._looks.see_logs(topics - known, logs)
        answers = {name: question.look(pictures[name], logs) for name, question in questions.items()}
        self._test(questions, answers, pictures, logs)
        for name, answer in answers.items():
            finding = _finding(name, kinds[name], pictures[name], answer, questions[name], logs)
            if pictures[name].may_expire:
                kept_from, kept_ms = pictures[name].kept_from, self._looks.kept_offsets.kept_ms
                finding = replace(finding, kept_from=kept_from, kept_ms=kept_ms)
            self._findings[name] = finding

    def _test(
        self, questions: dict[str, Question], answers: dict[str, Answer], pictures: dict[str, GroupPicture], logs: Logs
    ) -> None:
        """Tests backlogs that may be phantoms, one partition of each group at a time, because one record is enough."""
        end_s = time.monotonic() + _PROBE_S
        while (left_s := end_s - time.monotonic()) > 0:
            to_test = {name: answer.to_test for name, answer in answers.items() if answer.to_test}
            if not to_test:
                return
            for name, tested in self._probe.test(to_test, left_s).items():
                questions[name].phantoms.probed(tested.place, tested.result)
                answers[name] = questions[name].look(pictures[name], logs)


def _topics(picture: GroupPicture) -> set[str]:
    return set(picture.subscribed()) | {topic for topic, _ in picture.committed}


def _finding(
    name: str, kind: GroupKind, picture: GroupPicture, answer: Answer, question: Question, logs: Logs
) -> Finding:
    phantom = None
    if not picture.members and not question.phantoms.is_denied:
        has_tested = bool(question.phantoms.empty)
        phantom = False if answer.verdict.one_more else (True if has_tested and not answer.waiting else None)
    readers = None if picture.state is GroupState.UNKNOWN else lag_rule_readers(picture, logs)
    places = tuple(place for topic in sorted(_topics(picture)) for place in logs.partitions_of(topic))
    return Finding(
        name,
        kind,
        picture.state,
        len(picture.members),
        answer,
        phantom,
        readers,
        partitions=places,
        owners=picture.owners(),
    )


def lag_rule_readers(picture: GroupPicture, logs: Logs) -> int:
    """Returns the number of readers that a rule would want if the rule counts every offset as a message."""
    ends = {
        place: log.end for topic in _topics(picture) for place in logs.partitions_of(topic) if (log := logs.get(place))
    }
    lag = sum(max(0, end - picture.committed[place]) for place, end in ends.items() if place in picture.committed)
    return min(-(-lag // KEDA_LAG_THRESHOLD), len(ends))


def _closed(finding: Finding, question: Question, limit_s: float) -> Finding:
    """Returns a finding with the final answer to a question whose time is over."""
    answer = finding.answer
    verdict = answer.verdict
    if answer.to_test:
        verdict = Verdict(None, "its backlog could not be tested in time for whether it has any content")
    elif not limit_s:
        verdict = Verdict(None, "one look does not tell whether its members are about to commit")
    elif finding.members and not question.has_advanced:
        verdict = Verdict(None, f"its members have committed nothing for {limit_s:g} s")
    return replace(finding, answer=Answer(verdict, answer.waiting))
