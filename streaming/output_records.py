"""The records the monitor writes beside notifications, field by field (contract, "Outputs").

They are not where they are made, in outputs.py: that is compiled, and mypyc does not know msgspec's classes.
"""

import msgspec
from msgspec import Struct


class StartActivatedTask(Struct, tag="START_ACTIVATED_TASK", tag_field="type"):
    """A record of queue-tasks: internal activation wants a task to be started.

    From `expires_at` on it counts as lost unless it was heard of: who comes later must not start it.
    """

    queue: str
    task_id: str
    procedure_name: str | None
    execute_as: str | None
    sequence: int
    expires_at: str


class ActivatedTaskRow(Struct):
    """The value of a record of queue-activated-tasks: a row of sys.dm_broker_activated_tasks, and ours."""

    task_id: str
    database_name: str
    schema_name: str
    queue_name: str
    queue: str
    procedure_name: str | None
    execute_as: str | None
    sequence: int
    host: str | None
    is_confirmed: bool
    start_time: str


class MonitorRow(Struct):
    """The value of a record of queue-monitors: a row of sys.dm_broker_queue_monitors, and ours."""

    database_name: str
    schema_name: str
    queue_name: str
    state: str | None
    last_empty_rowset_time: str | None
    last_activated_time: str | None
    tasks_waiting: int
    unread_messages: int
    tasks_running: int
    task_limit_reached: int
    is_procedure_failed: bool
    max_queue_readers: int | None
    is_receive_enabled: bool
    is_activation_enabled: bool
    activation_sequence: int
    next_check_time: str | None
    update_time: str


class BatchRecord(Struct):
    """A record of queue-batches: the events one batch gave one queue, and both clocks. For audits and tests."""

    queue: str
    batch_ms: int
    clock_ms: int
    events: list[tuple[str, msgspec.Raw]]
