"""The settings of the core that users choose, and its fixed limits."""

from dataclasses import dataclass
from enum import StrEnum

# The name of the event notification of an automatically created queue.
DEFAULT_NOTIFICATION = "default"

# The number of consecutive rollbacks that set a queue OFF, as in Service Broker (poison messages).
POISON_ROLLBACKS = 5
# Rollbacks of transactions that were open at the same time count once if they come within this time.
ONE_CAUSE_MS = 1_000

# D12: the third and each further useless activation in a row doubles the quiet window, up to ten minutes.
USELESS_ACTIVATIONS_TOLERATED = 2
MAX_QUIET_WINDOW_MS = 600_000

# After this silence of an observer, reports of senders count again, because the observer may be gone for good.
OBSERVER_GONE_MS = 600_000

# Transactions that were given back: the most marks of a queue, and their lifetime. A lease overdue by more than
# LEASE_OVERDUE_MS proves that the monitor was not running.
MAX_MARKS = 1_000
MARK_LIFETIME_MS = 24 * 3_600_000
LEASE_OVERDUE_MS = 10_000

# For this time after the time-out of a wait, the wait's result counts as being on its way. A batch of the monitor takes
# 0.45 s (p99). No result counts as being on its way if the session had been silent for SILENT_MS at the time-out, which
# is the interval between two SESSION_ALIVE: the session is probably dead.
RESULT_DUE_MS = 1_000
SILENT_MS = 10_000

# Limits for one queue: the sessions that wait or have an open transaction, and the open transactions of all sessions.
# Each reader is one session with one transaction. With identifiers of the greatest length they take 20 MB.
MAX_SESSIONS = 10_000
MAX_TRANSACTIONS = 10_000
# Each activation of a queue writes one record for each of its event notifications.
MAX_EVENT_NOTIFICATIONS = 100
# The limit of counts of messages, also in a reader's report (input_records.Unread). 64 bits hold far greater numbers.
MAX_MESSAGES = 10**12

# A shard's room is this many bytes for each queue that it may have. An ordinary queue takes 120 bytes (docs/scale.md).
# One with a long name or many sessions takes more, so the limit of queues is a limit of bytes as well.
QUEUE_BYTES = 512
# Commands may create up to this many times max_queues_per_shard, and have more room: a sender that writes to very many
# queues must not keep an administrator from defining one. Twice the room, 307 MB by default, filled the heap of 2 GiB
# completely (benchmarks/worst_writers.py).
COMMANDS_QUEUES_FACTOR = 2
COMMANDS_ROOM_PERCENT = 150

# D9: the pause before another start after a task has ended without a RECEIVE. Each further failure in a row doubles the
# pause, like the back-off of the activator's programs.
TASK_RETRY_MS = 5_000
MAX_TASK_RETRY_MS = 60_000
# The monitor keeps this many characters of a task's failure. A host may report a longer text.
MAX_FAILURE_LENGTH = 200
# The greatest MAX_QUEUE_READERS of CREATE QUEUE, and the most running tasks in a queue's state.
MAX_QUEUE_READERS = 32_767


class Semantics(StrEnum):
    """The choice for D1, D2, D3, D9 and D12: Service Broker's observed behaviour, or the text of its documentation."""

    OBSERVED = "observed"
    LITERAL = "literal"


@dataclass(frozen=True)
class CoreSettings:
    """Settings of all queues; all durations in milliseconds.

    Attributes:
        quiet_window_ms: W of rule B.
        external_activation_timeout_ms: T of a queue that does not set its own T; FOREVER_MS: never expires.
        semantics: Decides D1, D2, D3, D9 and D12.
        session_lease_ms: How long a wait lasts after the session's last record.
        transaction_lease_ms: How long transactions stay open after the session's last record.
        task_lease_ms: How long a task counts as running after its host's last record.
        check_interval_ms: The shortest pause between writes of a row of the monitors view for changed counts.
        queue_idle_expiry_ms: The time without events after which an automatic queue is forgotten.
        auto_create_queues: Whether a queue created by an event gets the event notification `default`.
        max_queues_per_shard: The most queues that events can create in a shard. The room, which limits the bytes of the
            shard's state, is QUEUE_BYTES for each of these queues. Commands may create more queues and use more room.
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
