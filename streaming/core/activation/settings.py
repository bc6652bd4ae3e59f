"""What the core needs to know from the user, and the limits that are not the user's to set."""

from dataclasses import dataclass
from enum import StrEnum

# Name of the event notification that an automatically created queue has (contract, "queue-commands").
DEFAULT_NOTIFICATION = "default"

# Service Broker's number of consecutive rollbacks after which a queue is set OFF [E: poison messages].
POISON_ROLLBACKS = 5

# D12: from the third useless activation in a row the quiet window doubles, up to ten minutes.
USELESS_ACTIVATIONS_TOLERATED = 2
MAX_QUIET_WINDOW_MS = 600_000

# Transactions: how many given back stay marked per queue, for how long, and from when on an overdue lease
# proves that nobody was running (activation.md, "Transactions").
MAX_MARKS = 1_000
MARK_LIFETIME_MS = 24 * 3_600_000
LEASE_OVERDUE_MS = 10_000

# The sessions of a queue that wait or have a transaction open, and the open transactions of all of them. Each reader is
# one session with one transaction; with identifiers of their greatest length these are 20 MB.
MAX_SESSIONS = 10_000
MAX_TRANSACTIONS = 10_000
# Each activation of a queue writes a record for each of its event notifications.
MAX_EVENT_NOTIFICATIONS = 100
# Counts of messages stop here, as what a reader reports does (records.Unread): far below what 64 bits hold.
MAX_MESSAGES = 10**12

# What a queue counts for at least when a shard's room is measured: an ordinary one takes 120 bytes (docs/scale.md). One
# with a long name or many sessions counts for more queues, so that the limit of queues is one of bytes as well.
QUEUE_BYTES = 512
# Commands create queues beyond max_queues_per_shard, up to so many times as many, and have more room: whoever sends
# messages to a great many queues must not keep an administrator from defining one. Twice the room, 307 MB by default,
# filled the heap of 2 GiB to the last byte (benchmarks/worst_writers.py).
COMMANDS_QUEUES_FACTOR = 2
COMMANDS_ROOM_PERCENT = 150

# D9: how long after it failed to start, was killed or lost, a task is started again. Each further failure in a row
# doubles it, as an activator's programs back off.
TASK_RETRY_MS = 5_000
MAX_TASK_RETRY_MS = 60_000
# Of what a host says about a task that failed to start, so much is kept.
MAX_FAILURE_LENGTH = 200
# The most a queue can ask for (CREATE QUEUE: MAX_QUEUE_READERS); so many tasks of a queue are remembered at most.
MAX_QUEUE_READERS = 32_767


class Semantics(StrEnum):
    """How D1 and D3 are decided: as the original was observed to behave, or as its document says word for word."""

    OBSERVED = "observed"
    LITERAL = "literal"


@dataclass(frozen=True)
class CoreSettings:
    """Settings of all queues; all durations in milliseconds.

    Attributes:
        quiet_window_ms: W of rule B.
        external_activation_timeout_ms: T of a queue that sets none of its own; FOREVER_MS never expires.
        semantics: Decides D1 and D3.
        session_lease_ms: How long the wait of a silent session counts.
        transaction_lease_ms: How long the transactions of a silent session stay open.
        task_lease_ms: How long an activated task that is not heard of counts as running.
        check_interval_ms: How often the monitors view may be written for a changed count.
        queue_idle_expiry_ms: After how long without events an automatic queue is forgotten.
        auto_create_queues: Whether a queue created by an event gets the event notification `default`.
        max_queues_per_shard: A shard that has so many queues, or QUEUE_BYTES of state for each of so many, takes up
            nothing more that no command defines.
    """

    quiet_window_ms: int = 5_000
    external_activation_timeout_ms: int = 30_000
    semantics: Semantics = Semantics.OBSERVED
    session_lease_ms: int = 60_000
    transaction_lease_ms: int = 60_000
    task_lease_ms: int = 60_000
    check_interval_ms: int = 1_000
    queue_idle_expiry_ms: int = 7 * 24 * 3_600_000
    auto_create_queues: bool = True
    max_queues_per_shard: int = 37_500
