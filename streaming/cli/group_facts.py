"""Looks at the consumer group that a queue stands for: its state, its members and its topics."""

from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException

from streaming.cli.group_survey import GroupSurvey
from streaming.core.numbers import plural
from streaming.core.observer.pictures import GroupState
from streaming.errors import UserError
from streaming.kafka.access import denial
from streaming.kafka.admin import ADMIN_TIMEOUT_S, Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.patience import COORDINATOR_REQUEST_S, COORDINATOR_TIMEOUT_S

NOT_SEEN = "does not exist, or this user may not see it"
_NOT_THERE = (ConsumerGroupState.DEAD, ConsumerGroupState.UNKNOWN)


@dataclass(frozen=True)
class GroupFacts:
    """The facts about a consumer group.

    Attributes:
        name: The group's id.
        state: Its state; None if there is no such group.
        members: The number of its members.
        topics: Topic that the group reads -> number of partitions; None if this user may not see the topic.
        problem: The reason why nothing is known of the group; empty if something is known.
        backlog: The number of offsets that the group has not committed, as in `groups`; None if it is not known.
    """

    name: str
    state: str | None = None
    members: int = 0
    topics: dict[str, int | None] = field(default_factory=dict)
    problem: str = ""
    backlog: int | None = None

    @property
    def is_there(self) -> bool:
        """Returns whether Kafka knows the group."""
        return self.state is not None

    def lines(self) -> list[str]:
        """Returns the group's state, members and backlog, for people."""
        if self.problem:
            return [f"{self.name}: {self.problem}"]
        if self.state is None:
            return [f"{self.name}: neither members nor committed offsets"]
        backlog = "" if self.backlog is None else f", backlog {self.backlog:,}"
        return [f"{self.name}: {self.state}, {plural(self.members, 'member')}{backlog}"]

    def topic_lines(self) -> list[str]:
        """Returns the topics that the group reads, for people."""
        return [
            f"{topic}: {NOT_SEEN if count is None else plural(count, 'partition')}"
            for topic, count in self.topics.items()
        ]

    def as_json(self) -> dict[str, Any]:
        """Returns the fields as plain values, without the problem."""
        return {name: value for name, value in asdict(self).items() if name != "problem"}


def find(kafka: Cluster, name: str, named: list[str]) -> GroupFacts:
    """Asks Kafka about a group.

    Args:
        kafka: The cluster.
        name: The group.
        named: The topics of the group's entry. They count while the group has neither members nor committed offsets.
    """
    try:
        admin = Admin(kafka)
        state, members, topics = _look(admin, name)
        names = sorted(topics or named)
        partitions = admin.visible_partitions(names, ADMIN_TIMEOUT_S) if names else {}
    except KafkaException as error:
        return GroupFacts(name, problem=f"unknown: {denial(error.args[0]) or error.args[0].str()}")
    except UserError as error:
        return GroupFacts(name, problem=f"unknown: {error}")
    return GroupFacts(name, state, members, partitions)


def may_have_work(kafka: Cluster, name: str) -> bool:
    """Returns whether a group has members or a backlog; False if this is unknown, or if the group does not exist."""
    with suppress(UserError), closing(GroupSurvey(kafka, name)) as survey:
        [found] = survey.ask(0.0, lambda *_: None)
        is_known = found.state is not GroupState.UNKNOWN
        return is_known and bool(found.members or found.backlog or found.answer.verdict.one_more is not False)
    return False


def with_backlog(kafka: Cluster, facts: GroupFacts) -> GroupFacts:
    """Returns a group with its present backlog. No monitor and no observer needs to run."""
    if not facts.is_there:
        return facts
    with suppress(UserError), closing(GroupSurvey(kafka, facts.name)) as survey:
        [found] = survey.ask(0.0, lambda *_: None)
        is_known = found.state is not GroupState.UNKNOWN and survey.new_denials() is None
        return replace(facts, backlog=found.backlog if is_known else None)
    return facts


def _look(admin: Admin, name: str) -> tuple[str | None, int, set[str]]:
    """Returns a group's state, its number of members, and the topics that members read or the group has committed."""
    client = admin.client_for_group(name)
    try:
        group = client.group(name)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
            raise
        return None, 0, set()
    asked = [ConsumerGroupTopicPartitions(name)]
    (future,) = client.list_consumer_group_offsets(asked, request_timeout=COORDINATOR_REQUEST_S).values()
    committed = {each.topic for each in client.result(future, COORDINATOR_TIMEOUT_S).topic_partitions}
    read = {place.topic for each in group.members if each.assignment for place in each.assignment.topic_partitions}
    state = None if group.state in _NOT_THERE else group.state.name.capitalize()
    return state, len(group.members), read or committed
