"""One step of the activator: decisions that are recorded in one transaction and only then carried out."""

from dataclasses import dataclass, field

from streaming.daemons.activator.programs import StartedProgram
from streaming.daemons.activator.settings import ActivatorEvent
from streaming.daemons.activator.store import ProgramRecord
from streaming.wire.input_records import SessionEnded


@dataclass
class Step:
    """The decisions of a step, not yet carried out."""

    now_ms: int
    changed: set[str] = field(default_factory=set)
    events: list[ActivatorEvent] = field(default_factory=list)
    started: list[tuple[ProgramRecord, StartedProgram]] = field(default_factory=list)
    ended: list[SessionEnded] = field(default_factory=list)
    old: int = 0

    def note(self, queue: str | None, what: str, why: str, pid: int | None = None) -> None:
        """Adds an event, which is logged and recorded."""
        self.events.append(ActivatorEvent(self.now_ms, queue, what, why, pid))
