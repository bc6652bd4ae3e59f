"""Collects what the activator decides at a time, which is recorded in one transaction and only then done."""

from dataclasses import dataclass, field

from streaming.daemons.activator.programs import StartedProgram
from streaming.daemons.activator.settings import ActivatorEvent
from streaming.daemons.activator.store import ProgramRecord


@dataclass
class Step:
    """Holds what has been decided and is not yet done."""

    now_ms: int
    changed: set[str] = field(default_factory=set)
    events: list[ActivatorEvent] = field(default_factory=list)
    started: list[tuple[ProgramRecord, StartedProgram]] = field(default_factory=list)
    ended: list[tuple[str, str]] = field(default_factory=list)
    old: int = 0

    def note(self, queue: str | None, what: str, why: str, pid: int | None = None) -> None:
        """Takes note of what is worth a line of the log."""
        self.events.append(ActivatorEvent(self.now_ms, queue, what, why, pid))
