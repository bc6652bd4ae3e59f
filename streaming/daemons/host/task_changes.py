"""The events of tasks, as a host tells them to its log and its caller."""

from dataclasses import dataclass
from enum import StrEnum

from streaming.core.activation.running_programs import ending
from streaming.wire.output_records import StartActivatedTask


class TaskEvent(StrEnum):
    """An event in the life of a task."""

    STARTED = "started"
    EXITED = "exited"
    FAILED_TO_START = "failed to start"


@dataclass(frozen=True)
class TaskChange:
    """An event of one task.

    Attributes:
        what: The event.
        task: The task.
        process_id: The process id; None if the task never had a process.
        exit_code: The exit code, or the negative number of the signal that ended the task; None if it has not exited.
        reason: Why the task failed to start.
        interrupted: Whether the host has ended the task, because the host itself is being stopped.
    """

    what: TaskEvent
    task: StartActivatedTask
    process_id: int | None = None
    exit_code: int | None = None
    reason: str | None = None
    interrupted: bool = False

    def line(self) -> str:
        """Returns the event as a line for the log."""
        return f"{name_of(self.task)}, task {self.task.task_id}: {self._how()}"

    def _how(self) -> str:
        if self.what is TaskEvent.STARTED:
            return f"started for activation {self.task.sequence}, process {self.process_id}"
        if self.exit_code is None:
            return f"failed to start: {self.reason}"
        if self.interrupted:
            return f"was ended with this host, {ending(self.exit_code)}"
        return f"{'was' if self.exit_code < 0 else 'exited with'} {ending(self.exit_code).removeprefix('exit ')}"


def name_of(task: StartActivatedTask) -> str:
    """Returns how the log names a task: its queue and its procedure."""
    return f"{task.queue}: {task.procedure_name or 'no procedure'}"
