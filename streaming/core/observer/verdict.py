"""Decides whether one more reader of a consumer group would have work, and says the reason in words."""

from dataclasses import dataclass
from enum import Enum

from streaming.core.numbers import plural
from streaming.core.observer.pictures import GroupPicture, GroupState, Member, Place, place_name

# These assignors distribute each topic separately. A member without a partition of a topic may have a partition of
# another topic, but no topic has more readers than partitions.
_PER_TOPIC = frozenset({"range"})
# The id of the additional member. Its position among the other ids matters only if subscriptions differ.
_ONE_MORE = ""


class Lateness(Enum):
    """Says whether a partition's messages have waited for longer than the group usually takes to commit."""

    LATE = "late"
    IN_TIME = "in time"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A partition with a backlog.

    Attributes:
        place: The partition.
        backlog: The number of offsets that are not committed. The number of messages may be lower.
        lateness: Whether the partition is late.
        owner: The partition's owner; None without an owner.
        unowned_ms: How long the partition has had no owner; 0 with an owner.
    """

    place: Place
    backlog: int
    lateness: Lateness
    owner: Member | None = None
    unowned_ms: int = 0

    @property
    def name(self) -> str:
        """Returns the partition's name as in Kafka's logs."""
        return place_name(self.place)


@dataclass(frozen=True, slots=True)
class Verdict:
    """An answer and its reason.

    Attributes:
        one_more: Whether one more reader would have work; None: unknown.
        reason: The reason, as a clause.
        places: The partitions that are the reason, if there are any.
        absent: The topics of the reason that do not exist.
    """

    one_more: bool | None
    reason: str
    places: tuple[Place, ...] = ()
    absent: tuple[str, ...] = ()


NOT_TESTED = Verdict(None, "it is not known yet whether its backlog has any content")
# Kafka leaves out the offsets in topics that the user may not see.
NOTHING_SEEN = Verdict(False, "it has neither members nor committed offsets that this user may see")


def unless_missing(verdict: Verdict, missing: str | None) -> Verdict:
    """Returns the verdict, or an unknown verdict if an answer of a broker is missing that might change the verdict.

    Args:
        verdict: The verdict by the answers that came.
        missing: The topic or the partition about which no answer came; None: all answers came.
    """
    if missing is None or verdict.one_more is not False:
        return verdict
    return Verdict(None, f"no answer came about {missing}")


def with_absent(verdict: Verdict, absent: list[str]) -> Verdict:
    """Returns the verdict about a group without a backlog. Its reason names the topics that do not exist.

    Args:
        verdict: The verdict.
        absent: The topics that the group reads and that do not exist.
    """
    if verdict.one_more is not False or not absent:
        return verdict
    is_one = len(absent) == 1
    they_are = f"topic {absent[0]} does not exist" if is_one else f"topics {', '.join(absent)} do not exist"
    # In such a group, the absent topic is the reason why nothing is visible.
    reason = they_are if verdict is NOTHING_SEEN else f"{verdict.reason}, and {they_are}"
    return Verdict(False, reason, absent=tuple(absent))


def unless_uncommitted(verdict: Verdict, sizes: dict[Place, int]) -> Verdict:
    """Returns the verdict about a group without members, or an unknown verdict if partitions lack a committed offset.

    Args:
        verdict: The verdict by the committed offsets.
        sizes: Partition without a committed offset, of a topic that the group reads -> its number of offsets.
    """
    if verdict.one_more is not False or not sizes:
        return verdict
    most = max(sizes, key=lambda place: sizes[place])
    holds = f"{place_name(most)}, which the group has never committed, holds {plural(sizes[most], 'offset')}"
    begin = "only the group's consumers know whether they begin at the beginning or at the end (auto.offset.reset)"
    return Verdict(None, f"{verdict.reason}, but {holds}: {begin}")


def without_members(waiting: list[Waiting], is_tested: bool) -> Verdict:
    """Returns the verdict about a group without members.

    Args:
        waiting: The partitions with a backlog, except backlogs found to be phantoms.
        is_tested: Whether the backlog could be tested.
    """
    if not waiting:
        return Verdict(False, "nothing is unread")
    most = max(waiting, key=lambda each: each.backlog)
    untested = "" if is_tested else "; these may be markers without content, which only a user who may read can tell"
    holds = f"{most.name} holds up to {plural(most.backlog, 'message')}{untested}"
    return Verdict(True, f"nobody reads, and {holds}", (most.place,))


def with_members(
    group: GroupPicture, partitions: dict[str, int], waiting: list[Waiting], late_ms: int | None
) -> Verdict:
    """Returns the verdict about a group with members.

    Args:
        group: The group.
        partitions: The number of partitions of each subscribed topic.
        waiting: The partitions with a backlog.
        late_ms: The age of messages from which a partition is late (L); None if the rhythm of commits is unknown.
    """
    if group.state is not GroupState.STABLE:
        return Verdict(None, "the group rebalances" if group.state is GroupState.REBALANCING else "no answer came")
    if not waiting:
        return Verdict(False, "nothing is unread")
    if (idle := next((member for member in group.members if not member.places), None)) is not None:
        return Verdict(False, f"{idle.name} has no partition either")
    if late_ms is None:
        return Verdict(None, "its members have committed nothing yet, so nobody knows which messages wait for a reader")
    surely = _among(group, partitions, [each for each in waiting if each.lateness is Lateness.LATE], late_ms)
    perhaps = _among(group, partitions, [each for each in waiting if each.lateness is not Lateness.IN_TIME], late_ms)
    if surely.one_more == perhaps.one_more:
        return surely
    reason = f"it is not known yet whether messages wait: {perhaps.reason} if they do"
    return Verdict(None, reason, perhaps.places)


def _among(group: GroupPicture, partitions: dict[str, int], late: list[Waiting], late_ms: int) -> Verdict:
    """Returns the verdict, given the partitions that are late."""
    if not late:
        return Verdict(False, "its members keep up")
    if (full := _why_full(group, partitions, late)) is not None:
        return Verdict(False, full)
    unowned = [each for each in late if each.owner is None and each.unowned_ms >= late_ms]
    if unowned:
        reason = f"{unowned[0].name} holds up to {plural(unowned[0].backlog, 'message')} and has no owner"
        return Verdict(True, reason, (unowned[0].place,))
    by_owner: dict[str, list[Waiting]] = {}
    for each in late:
        if each.owner is not None:
            by_owner.setdefault(each.owner.member_id, []).append(each)
    crowded = max(by_owner.values(), key=len, default=[])
    if len(crowded) < 2:
        return Verdict(False, _why_no_help(late[0]), (late[0].place,))
    owner = crowded[0].owner
    assert owner is not None  # noqa: S101 - for the type checker
    names = ", ".join(each.name for each in crowded[:3]) + (", ..." if len(crowded) > 3 else "")
    owns = f"{owner.name} owns {len(crowded)} partitions in which messages wait ({names})"
    owned = [each.place for each in late if each.owner is not None]
    reasons = tuple(each.place for each in crowded)
    if group.assignor in _PER_TOPIC and _owners_with_one_more(group, partitions, owned) <= len(by_owner):
        what = f"the assignor {group.assignor} would not share them out to more members if there was one more"
        return Verdict(False, f"{owns}, but {what}", reasons)
    return Verdict(True, owns, reasons)


def _owners_with_one_more(group: GroupPicture, partitions: dict[str, int], places: list[Place]) -> int:
    """Returns how many members would own these partitions if `range` distributed each topic to one more member.

    `range` gives each member adjacent partitions. The first members get one more partition each if the division has a
    remainder.
    """
    owners = set()
    for topic, number in places:
        readers = [each.member_id for each in group.members if not each.topics or topic in each.topics]
        share, larger = divmod(partitions[topic], len(readers) + 1)
        begin_of_others = larger * (share + 1)
        at = number // (share + 1) if number < begin_of_others else larger + (number - begin_of_others) // share
        owners.add([*sorted(readers), _ONE_MORE][at])
    return len(owners)


def _why_full(group: GroupPicture, partitions: dict[str, int], late: list[Waiting]) -> str | None:
    """Returns why one more member would get no partition from the assignor; None if it would get a partition."""
    members = len(group.members)
    if group.assignor in _PER_TOPIC:
        topic = max(sorted({each.place[0] for each in late}), key=lambda topic: partitions.get(topic, 0))
        if members < partitions.get(topic, 0):
            return None
        has = f"{topic} has {plural(partitions[topic], 'partition')}"
        return f"{plural(members, 'member')} and the assignor {group.assignor}: {has}"
    total = sum(partitions.values())
    return None if members < total else f"{plural(members, 'member')} and {plural(total, 'partition')}"


def _why_no_help(late: Waiting) -> str:
    if late.owner is None:
        return f"messages wait in {late.name}, which has had an owner until a moment ago"
    return f"messages wait in {late.name}, but {late.owner.name} owns no other partition with messages that wait"
