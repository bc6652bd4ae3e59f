"""The fields of the records that the monitor writes, except notifications; docs/contract.md explains them.

The classes are not in output_rows.py, which creates the records: that module is compiled, and mypyc does not support
msgspec's classes.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from streaming.wire.input_records import Identifier, ProcedureName
from streaming.wire.record_decoders import Int64

# The names of `queue_monitor.State`. ABSENT is null instead.
MonitorState = Literal["INACTIVE", "NOTIFIED", "RECEIVES_OCCURRING"]
# The name of a state, or a time: ISO 8601, UTC.
Short = Annotated[str, Meta(max_length=64)]


Headers = list[tuple[str, bytes]]
# The topic, key, value, headers and partition of a record. Without a partition, the key determines it.
OutputRow = tuple[str, bytes | None, bytes | None, Headers | None, int | None]


class StartActivatedTask(Struct, tag="START_ACTIVATED_TASK", tag_field="type", omit_defaults=True):
    """A record of queue-tasks: a request of internal activation to start a task.

    At `expires_at` a task that no host has reported counts as lost. From then on no host may start it. The last three
    fields are present only if an activation has requested the task. A task that is started again lacks them.
    """

    queue: str
    task_id: Identifier
    procedure_name: ProcedureName | None
    execute_as: Identifier | None
    sequence: Int64
    expires_at: Short
    reason: Short | None = None
    unread_messages: Int64 | None = None
    tasks_waiting: Int64 | None = None


class ActivatedTaskRow(Struct):
    """A record's value in queue-activated-tasks: a row of sys.dm_broker_activated_tasks, with additional fields."""

    task_id: str
    database_name: str
    schema_name: str
    queue_name: str
    queue: str
    procedure_name: ProcedureName | None
    execute_as: Identifier | None
    sequence: Int64
    host: Identifier | None
    is_confirmed: bool
    start_time: Short


class MonitorRow(Struct, omit_defaults=True):
    """A record's value in queue-monitors: a row of sys.dm_broker_queue_monitors, with additional fields.

    Some fields are present only in some rows:

    - `is_count_uncertain`: only if it is true.
    - `task_failures` to `next_start_time`: only if tasks of the queue fail.
    - `members` to `idle_since`: only for a queue that an observer reports.
    - `hindrance`: only if there is a reason why no reader is requested.
    - `quiet_since` and `quiet_until`: only during the quiet window.
    - `tasks_waiting_where`: only if sessions wait with WHERE.
    """

    database_name: str
    schema_name: str
    queue_name: str
    state: Short | None
    last_empty_rowset_time: Short | None
    last_activated_time: Short | None
    tasks_waiting: Int64
    unread_messages: Int64
    tasks_running: Int64
    task_limit_reached: Int64
    is_procedure_failed: bool
    max_queue_readers: Int64 | None
    is_receive_enabled: bool
    is_activation_enabled: bool
    activation_sequence: Int64
    next_check_time: Short | None
    update_time: Short
    is_count_uncertain: bool = False
    task_failures: Int64 = 0
    task_failure: str | None = None
    failing_since: Short | None = None
    failing_procedure: ProcedureName | None = None
    next_start_time: Short | None = None
    members: Int64 | None = None
    one_more: bool | None = None
    observer_silent_since: Short | None = None
    last_commit_time: Short | None = None
    idle_since: Short | None = None
    hindrance: Short | None = None
    quiet_since: Short | None = None
    quiet_until: Short | None = None
    tasks_waiting_where: Int64 = 0


class BatchRecord(Struct):
    """A record of queue-batches: the events of one queue in one batch, their times, and both clocks. For audits.

    Events that do not fit into one record fill several records, which `part` counts from 1 to `parts`.
    """

    queue: str
    batch_ms: int
    clock_ms: int
    part: int
    parts: int
    events: list[tuple[str, msgspec.Raw]]
    times_ms: list[int]
