"""One step of the activator: decisions that are recorded in one transaction and only then carried out."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from streaming.daemons.activator.programs import RunningProgram, StartedProgram
from streaming.daemons.activator.settings import ActivatorEvent
from streaming.daemons.activator.store import ProgramRecord, QueueRecord, Store
from streaming.system.logs import utf8
from streaming.wire.activator_rows import ActivatorRow
from streaming.wire.input_records import SessionEnded


@dataclass
class Step:
    """The decisions of a step, not yet carried out.

    Attributes:
        now_ms: The time.
        has_kafka_problem: Whether Kafka does not answer, or refuses.
        changed: The queues whose records have changed.
        told: Other queues with a record, whose rows are made again.
        events: The events to log and record.
        started: The programs that wait at their gates.
        stopped: The programs that are asked to end.
        ended: The sessions that have ended.
        old: The number of old notifications that need no answer.
        rows: The rows to be published; None removes a row. At the end, also the rows of `changed` and `told`.
    """

    now_ms: int
    has_kafka_problem: bool = False
    changed: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)
    events: list[ActivatorEvent] = field(default_factory=list)
    started: list[tuple[ProgramRecord, StartedProgram]] = field(default_factory=list)
    stopped: list[RunningProgram] = field(default_factory=list)
    ended: list[SessionEnded] = field(default_factory=list)
    old: int = 0
    rows: dict[str, ActivatorRow | None] = field(default_factory=dict)

    def note(self, queue: str | None, what: str, why: str, pid: int | None = None) -> None:
        """Adds an event, which is logged and recorded."""
        self.events.append(ActivatorEvent(self.now_ms, queue, what, utf8(why), pid))

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
                store.add_decision(event)
