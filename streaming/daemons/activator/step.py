"""One step of the activator: decisions that are recorded in one transaction and only then carried out."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from streaming.daemons.activator.programs import StartedProgram
from streaming.daemons.activator.settings import ActivatorEvent
from streaming.daemons.activator.store import DecisionRecord, ProgramRecord, QueueRecord, Store
from streaming.wire.activator_rows import ActivatorRow
from streaming.wire.input_records import SessionEnded


@dataclass
class Step:
    """The decisions of a step, not yet carried out; and the rows to be published of queues without a state."""

    now_ms: int
    changed: set[str] = field(default_factory=set)
    events: list[ActivatorEvent] = field(default_factory=list)
    started: list[tuple[ProgramRecord, StartedProgram]] = field(default_factory=list)
    ended: list[SessionEnded] = field(default_factory=list)
    old: int = 0
    rows: dict[str, ActivatorRow | None] = field(default_factory=dict)

    def note(self, queue: str | None, what: str, why: str, pid: int | None = None) -> None:
        """Adds an event, which is logged and recorded."""
        self.events.append(ActivatorEvent(self.now_ms, queue, what, why, pid))

    def save(self, store: Store, queues: Mapping[str, QueueRecord], acknowledged: list[str]) -> None:
        """Records the decisions in one transaction.

        Args:
            store: The state on disk.
            queues: The states of the queues.
            acknowledged: The ended sessions whose reports Kafka has acknowledged.
        """
        if not (self.changed or self.events or acknowledged):
            return
        with store.transaction():
            for queue in self.changed:
                store.save_queue(queue, queues[queue])
            for record, _ in self.started:
                store.add_program(record)
            for ended in self.ended:
                store.end_program(ended.session_id, ended.queue)
            for session_id in acknowledged:
                store.forget_session(session_id)
            for event in self.events:
                store.add_decision(DecisionRecord(event.at_ms, event.queue or "", event.what, event.why))
