"""Looks at consumer groups through Kafka's administration, with few requests for many groups.

kafka-python asks for the offsets of many groups in one request, for which librdkafka needs one a group. But it does not
know groups of the new protocol (KIP-848), whose members librdkafka describes.
"""

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import StrEnum
from typing import Any, TypeVar

from confluent_kafka import ConsumerGroupState, KafkaException
from kafka import IsolationLevel, TopicPartition
from kafka.admin import KafkaAdminClient, OffsetSpec
from kafka.errors import (
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from streaming.core.observer.expiry import KeptFrom
from streaming.core.observer.logs import Logs
from streaming.core.observer.pictures import GroupPicture, GroupState, Member, Place
from streaming.errors import UserError
from streaming.kafka import client_properties
from streaming.kafka.access import missing_rights
from streaming.kafka.admin import ADMIN_TIMEOUT_S, Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.group_commits import GroupCommits
from streaming.kafka.kept_offsets import KeptOffsets

_NO_ANSWER_CODE = -1
_NO_ANSWER = GroupPicture(GroupState.UNKNOWN)
_CLASSIC_STATES = {"Stable": GroupState.STABLE, "Empty": GroupState.EMPTY, "Dead": GroupState.EMPTY}
_CONSUMER_STATES = {
    ConsumerGroupState.STABLE: GroupState.STABLE,
    ConsumerGroupState.EMPTY: GroupState.EMPTY,
    ConsumerGroupState.DEAD: GroupState.EMPTY,
}
# The protocol type of groups that consume; that of groups whose offsets were committed without members is empty.
_CONSUMES = ("consumer", "")

# What a user may not look at and is told of in one sentence.
_MAX_NAMES = 10

_log = logging.getLogger("kafka")

Answer = TypeVar("Answer")
Asked = TypeVar("Asked")


class GroupKind(StrEnum):
    """The protocol of a group."""

    CLASSIC = "classic"
    CONSUMER = "consumer"  # KIP-848
    SHARE = "share"  # KIP-932: no client here sees its lag


def monotonic_ms() -> int:
    """Returns the time of looks: setting the clock does not change it."""
    return time.monotonic_ns() // 1_000_000


class GroupLooks:
    """Looks at the consumer groups of a cluster.

    Attributes:
        kept_offsets: How long Kafka keeps the offsets of groups without members.
        commits: Commits for groups without members, over the same connection.
    """

    def __init__(self, cluster: Cluster) -> None:
        """Connects.

        Raises:
            UserError: Kafka cannot be reached, or refuses.
        """
        self._cluster = cluster
        self._admin = Admin(cluster)
        self._admin.check()
        self.kept_offsets = KeptOffsets(self._admin)
        self._client = _connect(cluster)
        self.commits = GroupCommits(self._client)
        self._ids: dict[str, str] = {}
        # What this user may not look at, and whether that was said.
        self._denied: dict[str, bool] = {}

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def kinds(self) -> dict[str, GroupKind]:
        """Returns the kind of each group that this user may see; raises UserError if Kafka does not answer."""
        found = self._ask(self._client.list_groups)
        return {
            each["group_id"]: GroupKind(each.get("group_type") or GroupKind.CLASSIC)
            for each in found
            if each["protocol_type"] in _CONSUMES or each.get("group_type") == GroupKind.SHARE
        }

    def new_denials(self) -> str | None:
        """Returns the sentence about what this user may not look at; None: nothing since the last call."""
        new = sorted(name for name, is_said in self._denied.items() if not is_said)
        self._denied |= dict.fromkeys(new, True)
        more = [f"and {len(new) - _MAX_NAMES:,} more"] if len(new) > _MAX_NAMES else []
        return missing_rights([*(f"Describe on {name}" for name in new[:_MAX_NAMES]), *more]) if new else None

    def pictures(self, kinds: dict[str, GroupKind]) -> dict[str, GroupPicture]:
        """Returns a picture of each of these groups, which are no share groups."""
        classic = [name for name, kind in kinds.items() if kind is GroupKind.CLASSIC]
        described = self._in_parts(self._client.describe_groups, classic)
        committed = self._in_parts(self._client.list_group_offsets, list(kinds))
        pictures = {
            name: _classic_picture(described.get(name), committed.get(name))
            for name in classic
            if not _is_not_found(described.get(name))
        }
        for name in kinds.keys() - pictures.keys():
            pictures[name] = self._consumer_picture(name, committed.get(name))
        return pictures

    def _consumer_picture(self, name: str, committed: Any) -> GroupPicture:
        client = self._admin.client_for_groups()
        (future,) = client.describe_consumer_groups([name], request_timeout=ADMIN_TIMEOUT_S).values()
        try:
            found = client.result(future)
        except (KafkaException, UserError):
            return _NO_ANSWER
        if committed is None:
            return _NO_ANSWER
        members = tuple(
            Member(
                each.member_id,
                each.client_id,
                each.host,
                places=frozenset((one.topic, one.partition) for one in each.assignment.topic_partitions),
            )
            for each in found.members
        )
        state = _CONSUMER_STATES.get(found.state, GroupState.REBALANCING)
        return GroupPicture(state, found.partition_assignor, members, _offsets(committed), KeptFrom.LAST_COMMIT)

    def see_topics(self, topics: Iterable[str], logs: Logs) -> list[str]:
        """Finds out how many partitions topics have; forgets and returns those that are gone, or were made again."""
        names = sorted(topics)
        forgotten = []
        answers = self._in_parts(self._describe_topics, names)
        for name in names:
            answer = answers.get(name, {"error_code": _NO_ANSWER_CODE})
            is_gone = answer["error_code"] == UnknownTopicOrPartitionError.errno
            if answer["error_code"] == TopicAuthorizationFailedError.errno:
                self._denied.setdefault(f"topic {name}", False)
            if answer["error_code"] and not is_gone:
                logs.is_not_answered(name)
                continue
            if is_gone or self._ids.get(name, answer["topic_id"]) != answer["topic_id"]:
                logs.forget(name)
                if self._ids.pop(name, None) is not None:
                    forgotten.append(name)
            if not is_gone:
                self._ids[name] = answer["topic_id"]
                logs.has(name, len(answer["partitions"]))
        return forgotten

    def _describe_topics(self, names: list[str]) -> dict[str, Any]:
        return {each["name"]: each for each in self._client.describe_topics(names)}

    def see_logs(self, topics: Iterable[str], logs: Logs) -> None:
        """Finds out where the logs of topics begin and end. What is not answered stands as it was."""
        places = [place for name in sorted(topics) for place in logs.partitions_of(name)]
        begins = self._offsets_of(places, OffsetSpec.EARLIEST)
        ends = self._offsets_of(places, OffsetSpec.LATEST)
        answered_ms = monotonic_ms()  # an end is never taken for an older one than it is
        for place in places:
            if place in begins and place in ends:
                logs.seen(place, begins[place], ends[place], answered_ms)

    def see_ends(self, topics: Iterable[str], logs: Logs) -> set[str]:
        """Finds out where logs end whose beginnings are known; returns the topics of those that have moved."""
        known = {
            place: log for name in sorted(topics) for place in logs.partitions_of(name) if (log := logs.get(place))
        }
        ends = self._offsets_of(list(known), OffsetSpec.LATEST)
        answered_ms = monotonic_ms()
        moved = set()
        for place, end in ends.items():
            if end != known[place].end:
                moved.add(place[0])
            logs.seen(place, known[place].begin, end, answered_ms)
        return moved

    def _offsets_of(self, places: list[Place], spec: Any) -> dict[Place, int]:
        def ask(part: list[Place]) -> dict[Place, int]:
            specs = {TopicPartition(*place): spec for place in part}
            answers = self._client.list_partition_offsets(specs, isolation_level=IsolationLevel.READ_COMMITTED)
            return {(place.topic, place.partition): answer.offset for place, answer in answers.items()}

        return self._in_parts(ask, places)

    def _in_parts(self, ask: Callable[[list[Asked]], dict[Asked, Answer]], asked: list[Asked]) -> dict[Asked, Answer]:
        """Returns the answers about all that can be answered: kafka-python raises at the first error of a request."""
        if not asked:
            return {}
        try:
            return ask(asked)
        except KafkaTimeoutError as error:
            raise self._unreachable(error) from None
        except KafkaError as error:
            if len(asked) == 1:
                if isinstance(error, GroupAuthorizationFailedError):
                    self._denied.setdefault(f"consumer group {asked[0]}", False)
                return {}
        half = len(asked) // 2
        return self._in_parts(ask, asked[:half]) | self._in_parts(ask, asked[half:])

    def _ask(self, ask: Callable[[], Answer]) -> Answer:
        try:
            return ask()
        except KafkaError as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: KafkaError) -> UserError:
        return UserError(f"Kafka at {self._cluster.bootstrap_servers} does not say what its groups do: {error}")


def _connect(cluster: Cluster) -> KafkaAdminClient:
    _log.addHandler(logging.NullHandler())
    _log.propagate = False  # its errors arrive as exceptions
    try:
        return KafkaAdminClient(
            bootstrap_servers=cluster.bootstrap_servers.split(","), **client_properties.for_kafka_python(cluster.config)
        )
    except KafkaError as error:
        raise UserError(f"kafka-python cannot connect to Kafka at {cluster.bootstrap_servers}: {error}") from None


def _is_not_found(described: dict[str, Any] | None) -> bool:
    """Returns whether there is no group of the classic protocol: it may have become one of the new protocol."""
    return described is not None and str(described["error"]).startswith(f"[Error {GroupIdNotFoundError.errno}]")


def _classic_picture(described: dict[str, Any] | None, committed: Any) -> GroupPicture:
    if described is None or committed is None or described["error"]:
        return _NO_ANSWER
    state = _CLASSIC_STATES.get(described["group_state"], GroupState.REBALANCING)
    members = tuple(map(_classic_member, described["members"]))
    has_had_members = bool(described["protocol_type"])
    kept_from = KeptFrom.LAST_MEMBER if has_had_members else KeptFrom.LAST_COMMIT
    return GroupPicture(state, described["protocol_data"], members, _offsets(committed), kept_from)


def _classic_member(found: dict[str, Any]) -> Member:
    subscribed: list[str] = []
    assigned: list[dict[str, Any]] = []
    # A member of another kind of client has bytes that kafka-python could not decode.
    with suppress(KeyError, TypeError):
        subscribed = found["member_metadata"]["topics"]
    with suppress(KeyError, TypeError):
        assigned = found["member_assignment"]["assigned_partitions"]
    places = frozenset((each["topic"], number) for each in assigned for number in each["partitions"])
    return Member(found["member_id"], found["client_id"], found["client_host"], frozenset(subscribed), places)


def _offsets(committed: dict[TopicPartition, Any]) -> dict[Place, int]:
    return {(place.topic, place.partition): each.offset for place, each in committed.items() if each.offset >= 0}
