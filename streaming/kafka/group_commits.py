"""Commits offsets for consumer groups without members. Kafka refuses such a commit for a group with members."""

from dataclasses import dataclass

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import GroupAuthorizationFailedError, KafkaError, NoError, TopicAuthorizationFailedError
from kafka.structs import OffsetAndMetadata

from streaming.core.observer.pictures import Place


@dataclass(frozen=True)
class Committed:
    """The outcome of a commit.

    Attributes:
        is_done: Whether Kafka has taken all offsets of the commit.
        denied: The right that this user lacks for the commit; None if no right is missing.
    """

    is_done: bool
    denied: str | None = None


class GroupCommits:
    """Commits offsets for groups without members.

    It reads the committed offsets just before it commits, because Kafka has no conditional commit. If a member joins,
    commits and leaves between these two requests, which are milliseconds apart, the member's commit is lost.
    """

    def __init__(self, client: KafkaAdminClient) -> None:
        self._client = client

    def renew(self, group: str) -> Committed:
        """Commits the committed offsets of a group again, so that Kafka does not remove them."""
        try:
            return self._commit(group, self._committed(group))
        except KafkaError:
            return Committed(is_done=False)

    def begin(self, group: str, offsets: dict[Place, int]) -> Committed:
        """Commits offsets for a group that has no committed offsets yet."""
        try:
            if self._committed(group):
                return Committed(is_done=False)
            first = {TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()}
            return self._commit(group, first)
        except KafkaError:
            return Committed(is_done=False)

    def _committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        found = self._client.list_group_offsets([group])[group]
        return {place: each for place, each in found.items() if each.offset >= 0}

    def _commit(self, group: str, offsets: dict[TopicPartition, OffsetAndMetadata]) -> Committed:
        answers = self._client.alter_group_offsets(group, offsets)
        denied = None
        for place, error in answers.items():
            if error is GroupAuthorizationFailedError:
                denied = f"Read on consumer group {group}"
            elif error is TopicAuthorizationFailedError:
                denied = f"Read on topic {place.topic}"
        return Committed(bool(answers) and all(error is NoError for error in answers.values()), denied)
