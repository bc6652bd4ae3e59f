"""The log of an instance with two partitions, and its router.

The router is the plain shard for each partition. Its sink writes each batch at least once: failed attempts leave any
part of their records, and after a crash the router does a batch again.
"""

from dataclasses import dataclass, field
from random import Random

from streaming.core.conversations.decisions import CleanUp, Decision
from streaming.core.times import FOREVER_MS
from streaming.wire.decision_fields import fields_of
from streaming.wire.envelope import Envelope
from streaming.wire.service_commands import ServiceCommand
from streaming.wire.service_decisions import News, NotSentReport, RefusedReport, RetryReport, ServiceReport, encoder
from tests.support.conversation_truth import Place, Truth
from tests.support.plain_shard import Batch, PlainShard, Retried, Returned, ShardReport, Stored, lowest

PARTITIONS = 2
GENERATION = 1
# Decisions of a record. Few, so that a batch has many records.
_PORTION = 3
# A batch that is done again may need the records of the last batches.
_KEPT_BATCHES = 3
_CLEAN_UP_EVERY = 4


@dataclass
class Partition:
    """A partition of service-messages and service-decisions, with its shard.

    Attributes:
        number: Its number.
        shard: The shard.
        truth: The oracle.
        messages: Timestamps and statements, by offset.
        deleted_below: The offset below which messages were deleted.
        read: The offset up to which the router has read.
        log: The records of service-decisions, by offset.
        last_number: The number of the last record of the last batch.
        reads: `read` after each of the last batches.
        batches: The number of batches.
        places: Number of a record -> the side that each of its decisions delivers to.
        pending: The records that the sink has yet to write.
        late: Records of failed attempts that will be written with a later batch.
    """

    number: int
    shard: PlainShard
    truth: Truth = field(default_factory=Truth)
    messages: list[tuple[int, Envelope]] = field(default_factory=list)
    deleted_below: int = 0
    read: int = 0
    log: list[bytes] = field(default_factory=list)
    last_number: int = 0
    reads: list[int] = field(default_factory=list)
    batches: int = 0
    places: dict[int, list[Place | None]] = field(default_factory=dict)
    pending: list[bytes] = field(default_factory=list)
    late: list[bytes] = field(default_factory=list)


@dataclass(frozen=True)
class Planned:
    """A batch of a partition, as Spark plans it: the input, the state before the batch, and the output."""

    batch: Batch
    before: Stored
    numbers: tuple[int, int]
    written: list[bytes]


@dataclass
class Log:
    """All topics of an instance.

    Attributes:
        random: The source of randomness.
        partitions: The partitions of service-messages and service-decisions.
        now_ms: The brokers' clock.
        ahead_ms: How much the clock of the router's machine is ahead.
        commands: The records of service-commands, with their timestamps.
        reports: The records of service-reports.
    """

    random: Random
    partitions: list[Partition]
    now_ms: int = 1_000_000
    ahead_ms: int = 0
    commands: list[tuple[ServiceCommand, int]] = field(default_factory=list)
    reports: list[ServiceReport] = field(default_factory=list)


class Router:
    """The router: plans batches, writes their decisions, and repeats batches.

    Attributes:
        planned: The batch in progress; None: there is none.
        reports_read: The number of reports that it has read.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._random = log.random
        self.planned: list[Planned] | None = None
        self._last: list[Planned] | None = None
        self._commands = self.reports_read = 0

    @property
    def has_input(self) -> bool:
        """Returns whether there are records that the router has not read."""
        log = self._log
        are_unread = any(each.read < len(each.messages) for each in log.partitions)
        return are_unread or self._commands < len(log.commands) or self.reports_read < len(log.reports)

    def plan(self, *, is_whole: bool = False) -> None:
        """Begins a batch with all commands and reports, and some messages."""
        log = self._log
        commands, reports = log.commands[self._commands :], log.reports[self.reports_read :]
        self._commands, self.reports_read = len(log.commands), len(log.reports)
        self.planned = [self._take(each, commands, reports, is_whole) for each in log.partitions]

    def write(self, count: int) -> None:
        """Writes some of the pending records. Once all are written, the batch is committed."""
        if self.planned is None:
            return
        for partition in self._log.partitions:
            partition.log += partition.pending[:count]
            del partition.pending[:count]
        if not any(partition.pending for partition in self._log.partitions):
            self._last, self.planned = self.planned, None

    def crash(self) -> None:
        """Ends the router at any moment, even before it could note that the last batch was done; starts it again.

        It may start on another machine, with another clock.
        """
        if self._log.partitions[0].shard.is_moved:
            self._log.ahead_ms = self._random.choice((0, 0, -90_000, 90_000))
        is_commit_lost = self._random.random() < 0.3
        again = self.planned or (self._last if is_commit_lost else None)
        for partition in self._log.partitions:
            partition.pending.clear()
        if again is None:
            for partition in self._log.partitions:
                partition.shard.restore(partition.shard.stored())
            return
        self.planned = again
        for partition, planned in zip(self._log.partitions, again, strict=True):
            partition.shard.restore(planned.before)
            decisions = partition.shard.step(planned.batch)
            written = self._records(partition, decisions, planned.numbers)
            assert written == planned.written, "a batch that was done again has decided otherwise"
            self._sink(partition, written)

    def _take(
        self,
        partition: Partition,
        commands: list[tuple[ServiceCommand, int]],
        reports: list[ServiceReport],
        is_whole: bool,
    ) -> Planned:
        unread = len(partition.messages) - partition.read
        end = partition.read + (unread if is_whole or self._random.random() < 0.5 else self._random.randint(0, unread))
        assert partition.read >= partition.deleted_below, "an unread message was deleted"
        batch = Batch(
            self._log.now_ms + self._log.ahead_ms,
            commands,
            [
                _report(each)
                for each in reports
                if not isinstance(each, RefusedReport) or each.partition == partition.number
            ],
            [(offset, *partition.messages[offset]) for offset in range(partition.read, end)],
            ahead_ms=self._log.ahead_ms,
        )
        shard, before = partition.shard, partition.shard.stored()
        decisions = shard.step(batch)
        partition.read = end
        partition.batches += 1
        places = partition.truth.decide(batch.messages, decisions, shard.starts, shard.definitions)
        partition.reads = [*partition.reads[-_KEPT_BATCHES:], end]
        numbers = partition.last_number, end
        written = self._records(partition, decisions, numbers)
        for index in range(len(written)):
            partition.places[numbers[0] + 1 + index] = places[index * _PORTION : (index + 1) * _PORTION]
        partition.last_number += len(written)
        self._sink(partition, written)
        return Planned(batch, before, numbers, written)

    def _records(self, partition: Partition, decisions: list[Decision], numbers: tuple[int, int]) -> list[bytes]:
        """Returns the records of a batch."""
        last_number, end = numbers
        fields = [fields_of(each) for each in decisions]
        if partition.batches % _CLEAN_UP_EVERY == 0:
            shard = partition.shard
            first = min((lowest(shard.conversation(each)) for each in shard.conversations), default=FOREVER_MS)
            fields.append(fields_of(CleanUp(min(first, partition.reads[0]), 0, 0)))
        return [
            encoder.encode(
                {
                    "generation": GENERATION,
                    "number": last_number + 1 + index // _PORTION,
                    "first": last_number + 1,
                    "ends": (end, 0),
                    "decisions": fields[index : index + _PORTION],
                }
            )
            for index in range(0, len(fields), _PORTION)
        ]

    def _sink(self, partition: Partition, records: list[bytes]) -> None:
        """Prepares the records that the sink writes: all in order, among records that failed attempts have left."""
        chance = self._random.random
        attempts = [partition.late, records]
        partition.late = []
        if records and chance() < 0.4:
            left = [each for each in records if chance() < 0.6]
            if chance() < 0.2:
                partition.late = left
            else:
                attempts.append(left)
        turns = [index for index, attempt in enumerate(attempts) for _ in attempt]
        self._random.shuffle(turns)
        nexts = [iter(attempt) for attempt in attempts]
        partition.pending = [next(nexts[index]) for index in turns]


def _report(report: ServiceReport) -> ShardReport:
    if isinstance(report, RetryReport):
        return Retried(report.conversation_id)
    if isinstance(report, NotSentReport):
        return report
    if isinstance(report, News):
        return report
    return Returned(
        report.conversation_id,
        report.begun,
        report.is_initiator,
        report.round,
        report.deliveries(),
        report.reason,
        report.number,
        report.is_lasting,
    )
