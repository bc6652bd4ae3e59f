"""A plain shard beside the shard of the router's query. Both take the same batches, and a test may compare them."""

from dataclasses import dataclass, fields, replace
from typing import Any

import msgspec
import pyarrow as pa

from streaming.core.conversations.decision_batches import Failure, Report
from streaming.core.conversations.decisions import CleanUp, Decision
from streaming.core.conversations.settings import ConversationSettings
from streaming.core.routing.conversation import Instance
from streaming.spark.blocks import RECORDS
from streaming.spark.routing import run_shard
from streaming.spark.routing.shard_settings import RouterShardSettings
from streaming.spark.routing.sources import RouterSource
from streaming.spark.shard_worker import TakenShard
from streaming.wire.service_commands import ServiceCommand
from streaming.wire.service_decisions import News, NotSentReport, RetryReport, decode_decisions, report_of
from streaming.wire.topics import Topics
from tests.support.plain_shard import PARTITIONS, SECRET, Batch, PlainShard, Retried, ShardReport, Stored

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class BothStored(Stored):
    """The states of both shards."""

    row: tuple[Any, ...] | None = None


class QueryShard(PlainShard):
    """A plain shard that gives its batches to the query's shard, too."""

    # So short that some records may be deleted.
    keep_ms = 60_000

    def __init__(
        self, number: int, settings: ConversationSettings, instance: Instance, partitions: int = PARTITIONS
    ) -> None:
        super().__init__(settings, instance, number=number, partitions=partitions)
        self.row: tuple[Any, ...] | None = None
        self._offset = 0

    @property
    def shard_settings(self) -> RouterShardSettings:
        """Returns the settings of the query's shard."""
        return RouterShardSettings(
            "", self.partitions, 1, self.instance, SECRET, self.keep_ms, conversations=self.settings
        )

    def stored(self) -> Stored:
        """Returns the states."""
        plain = super().stored()
        return BothStored(**{each.name: getattr(plain, each.name) for each in fields(plain)}, row=self.row)

    def restore(self, stored: Stored) -> None:
        """Goes back to states."""
        assert isinstance(stored, BothStored)
        super().restore(stored)
        self.row = stored.row

    def step(self, batch: Batch) -> list[Decision]:
        """Takes both shards through a batch; returns the decisions of the plain shard."""
        decisions = super().step(batch)
        taken = run_shard.run_shard(self.row, self.table(batch), batch.at_ms, self.shard_settings, self.number)
        self.row = taken.state if taken.state is not None else self.row
        self.check(batch, decisions, taken)
        return decisions

    def check(self, batch: Batch, expected: list[Decision], taken: TakenShard) -> None:
        """Checks what the query's shard has done."""

    def table(self, batch: Batch) -> pa.Table:
        """Returns the records of a batch, with a tick."""
        rows = [self._row_of(RouterSource.TICKS, batch.tick_ms, None, None)]
        rows += [self._command(command, at_ms) for command, at_ms in batch.commands]
        rows += [self._row_of(RouterSource.REPORTS, batch.tick_ms, None, self._report(each)) for each in batch.reports]
        for source, said in ((RouterSource.MESSAGES, batch.messages), (RouterSource.INCOMING, batch.incoming)):
            for offset, at_ms, envelope in said:
                rows.append(self._row_of(source, at_ms, envelope.conversation_id.encode(), _encode(envelope), offset))
        return pa.Table.from_pylist(rows, RECORDS)

    def _command(self, command: ServiceCommand, at_ms: int) -> dict[str, Any]:
        return self._row_of(RouterSource.COMMANDS, at_ms, command.database.encode(), _encode(command))

    def _report(self, returned: ShardReport) -> bytes:
        if isinstance(returned, News | NotSentReport):
            return _encode(returned)
        if isinstance(returned, Retried):
            return _encode(RetryReport(returned.conversation_id))
        direction = returned.conversation_id, returned.is_initiator
        failure = Failure(returned.is_lasting, returned.reason, returned.number)
        begun = -1 if returned.begun is None else returned.begun
        return _encode(report_of(self.number, Report(direction, begun, returned.round, failure, [*returned.refused])))

    def _row_of(
        self, source: RouterSource, at_ms: int, key: bytes | None, value: bytes | None, offset: int | None = None
    ) -> dict[str, Any]:
        self._offset += 1
        return {
            "source": source,
            "partition": self.number if source in {RouterSource.MESSAGES, RouterSource.INCOMING} else 0,
            "offset": self._offset if offset is None else offset,
            "timestamp_ms": at_ms,
            "key": key,
            "value": value,
            "value_bytes": len(value or b""),
        }


class CheckedShard(QueryShard):
    """A plain shard and the query's shard, which must decide the same."""

    # A shard that is left alone does not store its clock, so a jump costs it some seconds more than the plain one.
    is_moved = False

    def __init__(self, number: int, settings: ConversationSettings, instance: Instance) -> None:
        # The order of conversations without messages is left open, so all must be looked at.
        super().__init__(number, replace(settings, max_looked_at=1_000), instance)

    def check(self, batch: Batch, expected: list[Decision], taken: TakenShard) -> None:
        """Compares the decisions and the times until the shards wake up."""
        values = [row[2] for row in taken.rows if row[0] == Topics("").service_decisions]
        found = [each for value in values for each in decode_decisions(value).batch(0).decisions]
        assert [each for each in found if not isinstance(each, CleanUp)] == expected, "the query decides otherwise"
        wakes = [wake_ms - self.clock.now_ms for wake_ms in self.wakes.values()]
        # Without a new state, the shard was left alone. It then only counts down to its wake-up, and looks at the
        # brokers' clock within the longest pause.
        if taken.state is not None:
            wakes += [due_ms - batch.broker_ms for due_ms in self.dues.values()]
        assert taken.wake_delay_ms <= max(0, min(wakes, default=taken.wake_delay_ms)), "the query sleeps too long"
