"""The limits and times of conversations."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConversationSettings:
    """The settings of the router's core. The checkpoint keeps them, because a batch that is done again must not differ.

    Attributes:
        max_held_per_direction: The most messages that may be held in one direction of a conversation.
        max_held: The most messages that may be held in a shard.
        max_conversations: The most conversations in a shard.
        tombstone_ms: The time for which a closed conversation is kept, so that late messages are recognised; 30 minutes
            as in Service Broker.
        delivery_retry_ms: The interval at which all failed deliveries are tried again. Service Broker starts the
            brokers of databases again on every fifth notification, and a notification comes every 5 s.
        timer_retry_ms: The time after which a DialogTimer is tried again if its service cannot be reached.
        max_unacknowledged: The most messages of a conversation that may be on their way to another instance.
        resend_ms: The time after which a message without acknowledgement is sent again; it doubles each time.
        max_resend_ms: The longest time after which a message is sent again.
        stale_ms: The time for which a message from another instance is kept while it cannot be accepted; its sender
            sends it again.
        max_hops: The number of instances that may send a message on.
        is_literal: Whether a question to the configuration service holds only the conversation that asked it (R3 of
            docs/routing.md).
        max_let_go: The most held messages that a shard releases in one batch.
        max_looked_at: The most conversations that a shard looks at in one batch because time has passed or definitions
            have changed.
    """

    max_held_per_direction: int = 10_000
    max_held: int = 1_000_000
    max_conversations: int = 1_000_000
    tombstone_ms: int = 1_800_000
    delivery_retry_ms: int = 25_000
    timer_retry_ms: int = 10_000
    max_unacknowledged: int = 500
    resend_ms: int = 4_000
    max_resend_ms: int = 64_000
    stale_ms: int = 10_000
    max_hops: int = 10
    is_literal: bool = False
    max_let_go: int = 20_000
    max_looked_at: int = 2_000
