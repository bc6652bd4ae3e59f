"""Commits offsets for consumer groups without being a member of them. Kafka refuses that for a group with members."""

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
        is_done: Whether Kafka has taken all of it.
        denied: The right that this user lacks for it; None: no right is missing.
    """

    is_done: bool
    denied: str | None = None


class GroupCommits:
    """Commits offsets for groups without members.

    It reads what is committed just before it commits, because Kafka has no commit that depends on what is there. If a
    member joins, commits and leaves between these two requests, which are milliseconds apart, its commit is lost.
    """

    def __init__(self, client: KafkaAdminClient) -> None:
        self._client = client

    def renew(self, group: str) -> Committed:
        """Commits again what a group has committed, so that Kafka keeps it for as long again."""
        try:
            return self._commit(group, self._committed(group))
        except KafkaError:
            return Committed(is_done=False)

    def begin(self, group: str, offsets: dict[Place, int]) -> Committed:
        """Commits the first offsets of a group, unless it has some."""
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
