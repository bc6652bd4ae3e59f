"""Looks at consumer groups through Kafka's administration, with few requests for many groups.

kafka-python asks for the offsets of many groups in one request. librdkafka needs a request for each group. But
kafka-python does not know groups of the new protocol (KIP-848). librdkafka describes the members of these groups.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import StrEnum
from typing import Any, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import MemberDescription
from kafka import IsolationLevel, TopicPartition
from kafka.admin import KafkaAdminClient, OffsetSpec
from kafka.errors import (
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    KafkaConnectionError,
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
from streaming.kafka.admin import Admin
from streaming.kafka.broker_clock import monotonic_ms
from streaming.kafka.clients import Cluster
from streaming.kafka.group_commits import GroupCommits
from streaming.kafka.kept_offsets import KeptOffsets

_NO_ANSWER_CODE = -1
_NO_ANSWER = GroupPicture(GroupState.UNKNOWN)
# All other states of a group are parts of a rebalance.
_STATES = {"STABLE": GroupState.STABLE, "EMPTY": GroupState.EMPTY, "DEAD": GroupState.EMPTY}
# The protocol types of groups that consume. A group whose offsets were committed without members has an empty type.
_CONSUMES = ("consumer", "")

# The most names in a sentence about missing rights.
_MAX_NAMES = 10

_log = logging.getLogger("kafka")

Answer = TypeVar("Answer")
Asked = TypeVar("Asked")


class GroupKind(StrEnum):
    """The protocol of a group."""

    CLASSIC = "classic"
    CONSUMER = "consumer"  # KIP-848
    SHARE = "share"  # KIP-932: no client here sees the lag of such a group


class GroupLooks:
    """Looks at the consumer groups of a cluster.

    Attributes:
        kept_offsets: The time for which Kafka keeps the offsets of groups without members.
        commits: Commits offsets for groups without members, over the same connection.
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
        # Topic or group that this user has no right to look at -> whether `new_denials` has returned it.
        self._denied: dict[str, bool] = {}

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def kinds(self) -> dict[str, GroupKind]:
        """Returns the kind of each group that this user may see; raises UserError if Kafka does not answer."""
        try:
            found = self._client.list_groups()
        except KafkaError as error:
            raise self._unreachable(error) from None
        return {
            each["group_id"]: GroupKind(each.get("group_type") or GroupKind.CLASSIC)
            for each in found
            if each["protocol_type"] in _CONSUMES or each.get("group_type") == GroupKind.SHARE
        }

    def new_denials(self) -> str | None:
        """Returns the sentence about rights found missing since the last call; None if no right was found missing."""
        new = sorted(name for name, is_said in self._denied.items() if not is_said)
        self._denied |= dict.fromkeys(new, True)
        more = [f"and {len(new) - _MAX_NAMES:,} more"] if len(new) > _MAX_NAMES else []
        return missing_rights([*(f"Describe on {name}" for name in new[:_MAX_NAMES]), *more]) if new else None

    def pictures(self, kinds: dict[str, GroupKind]) -> dict[str, GroupPicture]:
        """Returns group -> picture. The groups must not be share groups."""
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
        if committed is None:
            return _NO_ANSWER
        try:
            found = self._admin.client_for_groups().group(name)
        except (KafkaException, UserError):
            return _NO_ANSWER
        members = tuple(map(_consumer_member, found.members))
        state = _STATES.get(found.state.name, GroupState.REBALANCING)
        return GroupPicture(state, found.partition_assignor, members, _offsets(committed), KeptFrom.LAST_COMMIT)

    def see_topics(self, topics: Iterable[str], logs: Logs) -> list[str]:
        """Finds out how many partitions topics have. Forgets and returns the topics that were deleted or made again."""

        def describe(names: list[str]) -> dict[str, Any]:
            return {each["name"]: each for each in self._client.describe_topics(names)}

        names = sorted(topics)
        forgotten = []
        answers = self._in_parts(describe, names)
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

    def see_logs(self, topics: Iterable[str], logs: Logs) -> None:
        """Finds out where the logs of topics begin and end. A log without an answer stays as it was."""
        places = [place for name in sorted(topics) for place in logs.partitions_of(name)]
        begins = self._offsets_of(places, OffsetSpec.EARLIEST)
        ends = self._offsets_of(places, OffsetSpec.LATEST)
        answered_ms = monotonic_ms()  # taken after the answer, so that no end counts as older than it is
        for place in places:
            if place in begins and place in ends:
                logs.seen(place, begins[place], ends[place], answered_ms)

    def see_ends(self, topics: Iterable[str], logs: Logs) -> set[str]:
        """Finds out the ends of logs with a known beginning; returns the topics whose ends have moved."""
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
        """Returns the answers without errors. If a request has an error, kafka-python returns none of its answers."""
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

    def _unreachable(self, error: KafkaError) -> UserError:
        why = "it cannot be reached" if isinstance(error, KafkaConnectionError) else error
        return UserError(f"Kafka at {self._cluster.bootstrap_servers} does not say what its groups do: {why}")


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
    """Returns whether the answer says that the group is not of the classic protocol, but may be of the new protocol."""
    return described is not None and str(described["error"]).startswith(f"[Error {GroupIdNotFoundError.errno}]")


def _classic_picture(described: dict[str, Any] | None, committed: Any) -> GroupPicture:
    if described is None or committed is None or described["error"]:
        return _NO_ANSWER
    state = _STATES.get(described["group_state"].upper(), GroupState.REBALANCING)
    members = tuple(map(_classic_member, described["members"]))
    # A group that has never had members has no protocol type.
    kept_from = KeptFrom.LAST_MEMBER if described["protocol_type"] else KeptFrom.LAST_COMMIT
    return GroupPicture(state, described["protocol_data"], members, _offsets(committed), kept_from)


def _consumer_member(found: MemberDescription) -> Member:
    places = frozenset((each.topic, each.partition) for each in found.assignment.topic_partitions)
    return Member(found.member_id, found.client_id, found.host, places=places)


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
