"""Takes a shard of the router through one batch.

The order is: definitions and reports, messages from other instances, due conversations, statements of programs.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from streaming.core.conversations.context import Context
from streaming.core.conversations.conversation import Conversation
from streaming.core.conversations.decisions import UNKNOWN_CONVERSATION, Drop
from streaming.core.conversations.dispatcher import take_incoming
from streaming.core.conversations.due_work import end_unsendable, look, retry, send_again, take_back
from streaming.core.conversations.kinds import Source
from streaming.core.conversations.statements import UNKNOWN, take
from streaming.core.conversations.step import Step
from streaming.core.conversations.suspects import Suspect, end_suspect
from streaming.core.maintenance import tasks
from streaming.core.times import FOREVER_MS
from streaming.spark.routing.clean_up import clean_up
from streaming.spark.routing.conversation_store import ConversationStore, views_of
from streaming.spark.routing.decision_rows import decision_records
from streaming.spark.routing.shard_definitions import Advanced, advance, opened
from streaming.spark.routing.shard_records import Partition, Record, dead_letter, times_of
from streaming.spark.routing.shard_settings import RouterShardSettings
from streaming.spark.routing.shard_state import ShardState
from streaming.spark.routing.sources import RouterSource
from streaming.spark.routing.take_news import ask_for_routes, take_news
from streaming.spark.routing.view_rows import conversation_rows, definition_rows, forgotten_rows, removal_rows
from streaming.spark.shard_worker import TakenShard
from streaming.wire.envelope import Envelope, decode_incoming, decode_value
from streaming.wire.output_records import OutputRow
from streaming.wire.record_decoders import InvalidRecordError
from streaming.wire.service_decisions import (
    ConnectedReport,
    News,
    NotSentReport,
    RefusedReport,
    RetryReport,
    ServiceReport,
    decode_report,
)
from streaming.wire.topics import Topics

# The partition whose shard writes the views of definitions, and the dead letters of records that every shard gets.
_WRITER_OF_SHARED = 0
# A reason becomes the text of an Error, which has at most 4,000 characters.
_MAX_REASON_LENGTH = 1_000
_WRONG_KEY = "the record's key must be its conversation_id"
_WRONG_PARTITION = (
    "the conversation begins in another partition than its key's: set `partitioner=murmur2_random` in clients that are "
    "not Java's"
)


def step_shard(
    state: ShardState,
    records: Sequence[list[Record]],
    settings: RouterShardSettings,
    partition: int,
    suspects: Sequence[Suspect],
) -> TakenShard:
    """Steps the conversations that a batch names, and the conversations that are due.

    Args:
        state: The state, which is changed.
        records: The records of the batch, by source and in order.
        settings: The settings.
        partition: The shard's partition.
        suspects: Conversations that have to end, because the shard was restored.
    """
    return _ShardStep(state, records, settings, partition).run(suspects)


class _ShardStep:
    """A shard in a batch."""

    def __init__(
        self, state: ShardState, records: Sequence[list[Record]], settings: RouterShardSettings, partition: int
    ) -> None:
        self.state, self.records, self.settings, self.partition = state, records, settings, partition
        self.said = {Source.MESSAGES: records[RouterSource.MESSAGES], Source.INCOMING: records[RouterSource.INCOMING]}
        self.times = times_of(records, state.clock.batch_ms)
        self.own = Partition(partition, settings.partitions)
        self.topics = Topics(settings.topic_prefix)
        self.rows: list[OutputRow] = []
        self.done: Counter[str] = Counter()
        self.store = ConversationStore(state.conversations)
        self.advanced = advance(state.definitions, records[RouterSource.COMMANDS], self.times.tick_ms)
        self.context = Context(
            self.advanced.definitions,
            settings.instance,
            settings.conversations,
            state.clock.now_ms,
            self.times.broker_ms,
            state.held,
            len(self.store),
            self.store.incoming,
            state.away,
            state.questions,
            state.mirrors,
            state.round_trip_ms,
            self.times.read_ms,
        )

    def run(self, suspects: Sequence[Suspect]) -> TakenShard:
        """Takes the shard through the batch."""
        context, store = self.context, self.store
        self._write_definitions(self.advanced)
        reports = self._decode_reports()
        messages, incoming = self._decode_said(Source.MESSAGES), self._decode_said(Source.INCOMING)
        news = [report for report in reports if isinstance(report, News)]
        needed = take_news(context, news, self.state.away, store, self.advanced.changes)
        store.take_up({report.conversation_id for report in reports if not isinstance(report, News)})
        store.take_up({found.conversation_id for _, found in (*messages, *incoming) if isinstance(found, Envelope)})
        self._end_suspects(suspects)
        for report in reports:
            self._take_report(report)
        # Acknowledgements are taken before due messages are sent again.
        for record, found in incoming:
            self._take_said(Source.INCOMING, record, found)
        self._send_again(news)
        self._look_at_due()
        if self.partition == _WRITER_OF_SHARED:
            ask_for_routes(context, needed, store, self.settings.secret, self.own)
            self.done[tasks.ASK_FOR_ROUTES.name] += len(needed)
        for record, found in messages:
            self._take_said(Source.MESSAGES, record, found)
        for _, conversation in sorted(store.taken.items()):
            if conversation.far is not None:
                Step(context, conversation).acknowledge()
        wake_ms = self._close()
        return TakenShard(self.rows, self.state.row(wake_ms), wake_ms - context.now_ms, self.done)

    def _write_definitions(self, advanced: Advanced) -> None:
        """Stores the definitions after commands and expiries. One shard also writes the rows about the changes."""
        before, self.state.definitions = self.state.definitions, advanced.stored
        if self.partition != _WRITER_OF_SHARED:
            return
        topics, rows = self.topics, self.rows
        rows += [dead_letter(each, topics.service_commands, reason, topics) for each, reason in advanced.refused]
        if self.records[RouterSource.COMMANDS] or not before:
            rows += definition_rows(opened(before), advanced.definitions, topics, self.state.clock.batch_ms)

    def _decode_reports(self) -> list[ServiceReport]:
        """Returns the reports that may concern this partition. One shard makes invalid records dead letters."""
        found = []
        for record in self.records[RouterSource.REPORTS]:
            try:
                report = decode_report(record.value)
            except InvalidRecordError as error:
                if self.partition == _WRITER_OF_SHARED:
                    self.rows.append(dead_letter(record, self.topics.service_reports, str(error), self.topics))
            else:
                if not isinstance(report, RefusedReport) or report.partition == self.partition:
                    found.append(report)
        return found

    def _decode_said(self, source: Source) -> list[tuple[Record, Envelope | str]]:
        return [(record, _decode(source, record)) for record in self.said[source]]

    def _end_suspects(self, suspects: Sequence[Suspect]) -> None:
        """Ends the conversations that may have gone on since the state was saved.

        Deletes views that the state does not know. If such a conversation is kept, `_close` then writes its new views.
        """
        self.store.take_up({suspect.conversation_id for suspect in suspects})
        for suspect in suspects:
            known = self.store.taken.get(suspect.conversation_id)
            ended = end_suspect(self.context, known, suspect, self.settings.generation)
            if known is None and ended is not None:
                self.store.add(ended)
            self.rows += forgotten_rows(suspect.conversation_id, self.topics, self.partition, is_kept=ended is not None)

    def _take_report(self, report: ServiceReport) -> None:
        if isinstance(report, News):
            return
        conversation = self.store.taken.get(report.conversation_id)
        if isinstance(report, RefusedReport):
            self._take_refusal(conversation, report)
        elif conversation is not None and isinstance(report, RetryReport):
            retry(self.context, conversation)
        elif conversation is not None and isinstance(report, NotSentReport):
            reason = report.reason[:_MAX_REASON_LENGTH]
            end_unsendable(self.context, conversation, report.is_initiator, report.message_sequence_number, reason)

    def _take_refusal(self, conversation: Conversation | None, report: RefusedReport) -> None:
        refused = report.deliveries()
        # A report may be about an earlier conversation with this identifier, which the router has forgotten.
        if conversation is None or conversation.begun != report.begun:
            for each in refused:
                if each.offset is not None:
                    self.context.refuse(each.offset, UNKNOWN_CONVERSATION, UNKNOWN, each.source)
            return
        take_back(
            self.context,
            conversation,
            report.is_initiator,
            report.round,
            refused,
            report.number,
            report.reason[:_MAX_REASON_LENGTH],
            is_lasting=report.is_lasting,
        )

    def _send_again(self, news: Iterable[News]) -> None:
        """Sends the messages that wait for instances that can be reached again."""
        for report in news:
            if isinstance(report, ConnectedReport) and report.is_connected:
                for sender in self.store.take_up_sent_to([report.address]):
                    send_again(self.context, sender)

    def _look_at_due(self) -> None:
        """Looks at the conversations that are due, and deletes the views of conversations that are forgotten."""
        context, store, done = self.context, self.store, self.done
        before = len(context.decisions)
        for conversation in store.take_up_due(context.now_ms, context.read_ms, context.settings.max_looked_at):
            if context.let_go <= 0:
                break  # those that have not been looked at stay due
            store.looked_at(conversation)
            for direction in conversation.directions:
                retry_ms = direction.retry_ms
                if direction.waiting and retry_ms is not None and retry_ms <= context.now_ms:
                    done[tasks.RESTART_BROKERS.name] += 1
                elif direction.held is not None:
                    done[tasks.RECLASSIFY_CONVERSATIONS.name] += 1
            if not look(context, conversation):
                store.remove(conversation)
                self.rows += removal_rows(conversation, self.topics, self.partition)
        # Nothing else that is due drops messages.
        stale = sum(isinstance(each, Drop) for each in context.decisions[before:])
        done[tasks.DELETE_STALE_MESSAGES.name] += stale

    def _take_said(self, source: Source, record: Record, envelope: Envelope | str) -> None:
        """Takes a statement of a program or a message of another instance, or the reason why it is not valid."""
        if isinstance(envelope, str):
            self.context.refuse(record.offset, None, envelope, source)
            return
        conversation = self.store.taken.get(envelope.conversation_id)
        begins = conversation is None and (envelope.begin or source is Source.INCOMING)
        if begins and not self.own.has(record.key or b""):
            self.context.refuse(record.offset, None, _WRONG_PARTITION, source)
            return
        if source is Source.INCOMING:
            taken = take_incoming(self.context, conversation, envelope, record.offset, record.timestamp_ms)
        else:
            taken = take(self.context, conversation, envelope, record.offset, record.timestamp_ms)
        if conversation is None and taken is not None:
            self.store.add(taken)

    def _wake_at(self, instant_ms: int) -> int:
        """Returns the expected instant of the shard's clock when the brokers' clock shows an instant."""
        return min(FOREVER_MS, self.state.clock.now_ms + max(0, instant_ms - self.times.broker_ms))

    def _close(self) -> int:
        """Packs the conversations, numbers the decisions, and adds the rows of decisions and views.

        Returns the earliest wake-up of a conversation, a question, a route or a mirrored route, by the shard's clock.
        """
        state, context = self.state, self.context
        for end, source in enumerate((Source.MESSAGES, Source.INCOMING)):
            if self.said[source]:
                state.ends[end] = self.said[source][-1].offset + 1
        context.close()
        state.held, state.round_trip_ms = context.waiting_count, context.round_trip_ms
        for conversation, before in views_of(self.store):
            self.rows += conversation_rows(conversation, before, self.topics, self.partition, state.clock)
        state.conversations, (wake_ms, due_ms), lowest = self.store.pack(self.settings.conversations, context.now_ms)
        expiry_ms = self.advanced.definitions.next_expiry_ms()
        ends = state.ends[0], state.ends[1]
        deleted = clean_up(state.clean_up, state.clock, self.settings.keep_ms, ends, lowest)
        if deleted is not None:
            context.decisions.append(deleted)
            self.done[tasks.RESUME_CLEAN_UP.name] += 1
        values = list(decision_records(context.decisions, self.settings.generation, state.number, ends))
        state.number += len(values)
        self.rows += [(self.topics.service_decisions, None, value, None, self.partition) for value in values]
        return min(
            wake_ms,
            self._wake_at(due_ms),
            self._wake_at(FOREVER_MS if expiry_ms is None else expiry_ms),
            context.questions.next_ms(),
            context.mirrors.next_ms(),
        )


def _decode(source: Source, record: Record) -> Envelope | str:
    """Returns the envelope of a record, or the reason why the record has no valid envelope."""
    try:
        decode = decode_incoming if source is Source.INCOMING else decode_value
        envelope = decode(record.value, record.value_bytes)
    except InvalidRecordError as error:
        return str(error)
    if record.key != envelope.conversation_id.encode():
        return _WRONG_KEY
    if envelope.type == "ACK" and source is Source.MESSAGES:
        return "ACK is only for messages between instances"
    return envelope
