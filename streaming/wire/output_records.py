"""The records the monitor writes beside notifications, field by field (contract, "Outputs").

They are not where they are made, in output_rows.py: that is compiled, and mypyc does not know msgspec's classes.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from streaming.wire.decoding import Int64
from streaming.wire.input_records import Identifier, ProcedureName

# The names of `core.queue_monitor.State`, but for ABSENT, which is null.
MonitorState = Literal["INACTIVE", "NOTIFIED", "RECEIVES_OCCURRING"]
# The name of a state, or a time: ISO 8601, UTC.
Short = Annotated[str, Meta(max_length=64)]


Headers = list[tuple[str, bytes]]
# What is written of any record: topic, key, value, headers.
OutputRow = tuple[str, bytes | None, bytes | None, Headers | None]


class StartActivatedTask(Struct, tag="START_ACTIVATED_TASK", tag_field="type"):
    """A record of queue-tasks: internal activation wants a task to be started.

    From `expires_at` on it counts as lost unless it was heard of: who comes later must not start it.
    """

    queue: str
    task_id: Identifier
    procedure_name: ProcedureName | None
    execute_as: Identifier | None
    sequence: Int64
    expires_at: Short


class ActivatedTaskRow(Struct):
    """The value of a record of queue-activated-tasks: a row of sys.dm_broker_activated_tasks, and ours."""

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
    """The value of a record of queue-monitors: a row of sys.dm_broker_queue_monitors, and ours.

    The last fields are there only if tasks of the queue fail: what became of the last one, and since when.
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
    task_failures: Int64 = 0
    task_failure: str | None = None
    failing_since: Short | None = None
    failing_procedure: ProcedureName | None = None


class BatchRecord(Struct):
    """A record of queue-batches: the events one batch gave one queue, and both clocks. For audits and tests.

    Events that are too many for one record are in several: `part` counts them from 1 to `parts`.
    """

    queue: str
    batch_ms: int
    clock_ms: int
    part: int
    parts: int
    events: list[tuple[str, msgspec.Raw]]
