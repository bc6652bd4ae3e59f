"""The settings that a worker needs to take a shard of the router through a batch; they are pickled with the query."""

from dataclasses import dataclass, field

from streaming.core.conversations.settings import ConversationSettings
from streaming.core.routing.conversation import Instance
from streaming.wire.topics import DAY_MS


@dataclass(frozen=True)
class RouterShardSettings:
    """The settings of `run_shard` in every worker; a batch that is done again needs the same settings.

    Attributes:
        topic_prefix: The prefix of all topics.
        partitions: The number of partitions of service-messages.
        generation: The generation of the checkpoint.
        instance: This instance's addresses, and whether it forwards messages.
        secret: The secret of the checkpoint.
        keep_ms: The time for which the router keeps records to which no conversation refers.
        conversations: The limits and times of conversations.
    """

    topic_prefix: str
    partitions: int
    generation: int
    instance: Instance
    secret: str = ""
    keep_ms: int = DAY_MS
    conversations: ConversationSettings = field(default_factory=ConversationSettings)
