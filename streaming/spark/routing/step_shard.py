"""Takes a shard of the router through one batch: definitions, reports, what is due, then messages, each by offset."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from confluent_kafka import murmur2

from streaming.core.conversations.context import Context
from streaming.core.conversations.conversation import Conversation
from streaming.core.conversations.decisions import UNKNOWN_CONVERSATION, Drop
from streaming.core.conversations.kinds import Source
from streaming.core.conversations.looking import end_unsendable, look, retry, send_again, take_back
from streaming.core.conversations.mirrors import Mirrors
from streaming.core.conversations.questions import Questions
from streaming.core.conversations.receiving import take_incoming
from streaming.core.conversations.restoring import Suspect, end_suspect
from streaming.core.conversations.statements import UNKNOWN, take
from streaming.core.conversations.transmitting import acknowledge
from streaming.core.maintenance import tasks
from streaming.core.times import FOREVER_MS, Clock
from streaming.spark.routing.clean_up import CleanUpState, clean_up
from streaming.spark.routing.conversation_store import ConversationStore, views_of
from streaming.spark.routing.decision_rows import decision_records
from streaming.spark.routing.shard_definitions import Advanced, advance, opened
from streaming.spark.routing.shard_records import Record, Times, by_source, dead_letter, times_of
from streaming.spark.routing.shard_settings import RouterShardSettings
from streaming.spark.routing.sources import RouterSource
from streaming.spark.routing.take_news import ask_for_routes, take_news
from streaming.spark.routing.view_rows import conversation_rows, definition_rows, forgotten_rows, removal_rows
from streaming.wire.decoding import InvalidRecordError
from streaming.wire.envelope import Envelope, decode_incoming, decode_value
from streaming.wire.output_records import OutputRow
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


@dataclass(slots=True)
class RouterShard:
    """A shard between two batches.

    Attributes:
        clock: The shard's clock.
        definitions: The definitions, as stored.
        conversations: The conversations.
        number: The number of the last decision record.
        ends: The offsets of service-messages and service-incoming up to which it has read.
        held: The number of messages that it holds.
        clean_up: The state of cleaning up.
        packed: The conversations as stored, after a step.
        wake_ms: The earliest wake-up of a conversation, a question or a mirrored route, after a step.
        next_expiry_ms: The instant at which the next route expires, by the shard's clock, after a step.
        away: Address of another instance -> the instant until which it counts as not reachable.
        questions: The questions to the configuration service.
        mirrors: The mirrored routes that have been used.
        round_trip_ms: The time from sending to other instances until they acknowledge, smoothed.
        suspects: Conversations that have to end, because the shard was restored.
        done: Periodic task -> the number of things that the step has done for it.
    """

    clock: Clock
    definitions: bytes = b""
    conversations: ConversationStore = field(default_factory=ConversationStore)
    number: int = 0
    ends: list[int] = field(default_factory=lambda: [0, 0])
    held: int = 0
    clean_up: CleanUpState = field(default_factory=CleanUpState)
    packed: bytes = b""
    wake_ms: int = FOREVER_MS
    next_expiry_ms: int = FOREVER_MS
    away: dict[str, int] = field(default_factory=dict)
    questions: Questions = field(default_factory=Questions)
    mirrors: Mirrors = field(default_factory=Mirrors)
    round_trip_ms: int = 0
    suspects: Sequence[Suspect] = ()
    done: Counter[str] = field(default_factory=Counter)


def step_shard(shard: RouterShard, batch: pa.Table, settings: RouterShardSettings, partition: int) -> list[OutputRow]:
    """Steps the conversations that the batch names and those that are due. Returns the rows to be written, in order."""
    topics = Topics(settings.topic_prefix)
    records = by_source(batch)
    times = times_of(records, shard.clock.batch_ms)
    rows, advanced = _take_commands(shard, records[RouterSource.COMMANDS], times, topics, partition)
    reports = _decode_reports(records[RouterSource.REPORTS], partition, topics, rows)
    messages = [(record, _decode_message(record)) for record in records[RouterSource.MESSAGES]]
    incoming = [(record, _decode_incoming(record)) for record in records[RouterSource.INCOMING]]
    store = shard.conversations
    context = Context(
        advanced.definitions,
        settings.instance,
        settings.conversations,
        shard.clock.now_ms,
        times.broker_ms,
        shard.held,
        len(store),
        store.incoming,
        shard.away,
        shard.questions,
        shard.mirrors,
        shard.round_trip_ms,
        times.read_ms,
    )
    news = [report for report in reports if isinstance(report, News)]
    needed = take_news(context, news, shard.away, store, advanced.changes)
    store.take_up({report.conversation_id for report in reports if not isinstance(report, News)})
    store.take_up({found.conversation_id for _, found in (*messages, *incoming) if isinstance(found, Envelope)})
    rows += _end_suspects(context, shard, settings.generation, topics, partition)
    for report in reports:
        _take_report(context, store, report)
    place = partition, settings.partitions
    # Acknowledgements that have come are taken before what is due is sent again.
    for record, found in incoming:
        _take_incoming(context, store, record, found, place)
    _send_again(context, store, news)
    rows += _look_at_due(context, shard, topics, partition)
    if partition == _WRITER_OF_SHARED:
        ask_for_routes(context, needed, store, settings.secret, place)
        shard.done[tasks.ASK_FOR_ROUTES.name] += len(needed)
    for record, found in messages:
        _take_message(context, store, record, found, place)
    for _, conversation in sorted(store.taken.items()):
        acknowledge(context, conversation)
    for end, source in enumerate((RouterSource.MESSAGES, RouterSource.INCOMING)):
        if records[source]:
            shard.ends[end] = records[source][-1].offset + 1
    context.close()
    shard.held, shard.round_trip_ms = context.held, context.round_trip_ms
    return rows + _finish(shard, context, settings, topics, partition)


def _take_commands(
    shard: RouterShard, commands: list[Record], times: Times, topics: Topics, partition: int
) -> tuple[list[OutputRow], Advanced]:
    """Applies commands and expires routes. Returns the rows about them, and the definitions."""
    before = shard.definitions
    advanced = advance(before, commands, times.tick_ms)
    shard.definitions = advanced.stored
    expiry_ms = advanced.definitions.next_expiry_ms()
    shard.next_expiry_ms = _wake_at(shard, FOREVER_MS if expiry_ms is None else expiry_ms, times.broker_ms)
    if partition != _WRITER_OF_SHARED:
        return [], advanced
    rows = [dead_letter(each, topics.service_commands, reason, topics) for each, reason in advanced.refused]
    if commands or not before:
        rows += definition_rows(opened(before), advanced.definitions, topics, shard.clock.batch_ms)
    return rows, advanced


def _wake_at(shard: RouterShard, instant_ms: int, broker_ms: int) -> int:
    """Returns the instant of the shard's clock at which the brokers' clock is expected to show an instant."""
    return min(FOREVER_MS, shard.clock.now_ms + max(0, instant_ms - broker_ms))


def _decode_reports(
    records: list[Record], partition: int, topics: Topics, rows: list[OutputRow]
) -> list[ServiceReport]:
    """Returns the reports that may concern this partition. One shard makes dead letters of what is no report."""
    found = []
    for record in records:
        try:
            report = decode_report(record.value)
        except InvalidRecordError as error:
            if partition == _WRITER_OF_SHARED:
                rows.append(dead_letter(record, topics.service_reports, str(error), topics))
        else:
            if not isinstance(report, RefusedReport) or report.partition == partition:
                found.append(report)
    return found


def _end_suspects(
    context: Context, shard: RouterShard, generation: int, topics: Topics, partition: int
) -> list[OutputRow]:
    """Ends the conversations that may have gone on since the state was saved.

    Returns the rows that delete their views, if the state would not delete them: `_finish` writes others after them.
    """
    store = shard.conversations
    rows: list[OutputRow] = []
    store.take_up({suspect.conversation_id for suspect in shard.suspects})
    for suspect in shard.suspects:
        known = store.taken.get(suspect.conversation_id)
        ended = end_suspect(context, known, suspect, generation)
        if known is None and ended is not None:
            store.add(ended)
        rows += forgotten_rows(suspect.conversation_id, topics, partition, is_kept=ended is not None)
    return rows


def _take_report(context: Context, store: ConversationStore, report: ServiceReport) -> None:
    if isinstance(report, News):
        return
    conversation = store.taken.get(report.conversation_id)
    if isinstance(report, RefusedReport):
        _take_refusal(context, conversation, report)
    elif conversation is not None and isinstance(report, RetryReport):
        retry(context, conversation)
    elif conversation is not None and isinstance(report, NotSentReport):
        place, reason = (report.is_initiator, report.message_sequence_number), report.reason[:_MAX_REASON_LENGTH]
        end_unsendable(context, conversation, *place, reason)


def _send_again(context: Context, store: ConversationStore, news: Iterable[News]) -> None:
    """Sends what waits for the instances that can be reached again."""
    for report in news:
        if isinstance(report, ConnectedReport) and report.is_connected:
            for sender in store.take_up_sent_to([report.address]):
                send_again(context, sender)


def _take_refusal(context: Context, conversation: Conversation | None, report: RefusedReport) -> None:
    refused = report.deliveries()
    # A report may be about an earlier conversation with this identifier, which the router has forgotten.
    if conversation is None or conversation.begun != report.begun:
        for each in refused:
            if each.offset is not None:
                context.refuse(each.offset, UNKNOWN_CONVERSATION, UNKNOWN, each.source)
        return
    take_back(
        context,
        conversation,
        report.is_initiator,
        report.round,
        refused,
        report.number,
        report.reason[:_MAX_REASON_LENGTH],
        is_lasting=report.is_lasting,
    )


def _look_at_due(context: Context, shard: RouterShard, topics: Topics, partition: int) -> list[OutputRow]:
    """Does what is due. Returns the rows that delete the views of conversations that are forgotten."""
    rows: list[OutputRow] = []
    store, before = shard.conversations, len(context.decisions)
    for conversation in store.take_up_due(context.now_ms, context.read_ms, context.settings.max_looked_at):
        if context.let_go <= 0:
            break  # those that have not been looked at stay due
        store.looked_at(conversation)
        for direction in conversation.directions:
            if direction.waiting and 0 < direction.retry_ms <= context.now_ms:
                shard.done[tasks.RESTART_BROKERS.name] += 1
            elif direction.held_since_ms != FOREVER_MS:
                shard.done[tasks.RECLASSIFY_CONVERSATIONS.name] += 1
        if not look(context, conversation):
            store.remove(conversation)
            rows += removal_rows(conversation, topics, partition)
    # Nothing else that is due drops messages.
    stale = sum(isinstance(each, Drop) for each in context.decisions[before:])
    shard.done[tasks.DELETE_STALE_MESSAGES.name] += stale
    return rows


def _decode_message(record: Record) -> Envelope | str:
    """Returns the envelope of a message, or the reason why it has no valid one."""
    try:
        envelope = decode_value(record.value, record.value_bytes)
    except InvalidRecordError as error:
        return str(error)
    if record.key != envelope.conversation_id.encode():
        return _WRONG_KEY
    if envelope.type == "ACK":
        return "ACK is only for messages between instances"
    return envelope


def _decode_incoming(record: Record) -> Envelope | str:
    """Returns the envelope of a message from another instance, or the reason why it has no valid one."""
    try:
        envelope = decode_incoming(record.value, record.value_bytes)
    except InvalidRecordError as error:
        return str(error)
    return envelope if record.key == envelope.conversation_id.encode() else _WRONG_KEY


def _take_incoming(
    context: Context, store: ConversationStore, record: Record, envelope: Envelope | str, place: tuple[int, int]
) -> None:
    """Takes a message from another instance; `place` is its partition and the number of partitions."""
    if isinstance(envelope, str):
        context.refuse(record.offset, None, envelope, Source.INCOMING)
        return
    conversation = store.taken.get(envelope.conversation_id)
    partition, partitions = place
    if conversation is None and murmur2(record.key or b"", partitions) != partition:
        context.refuse(record.offset, None, _WRONG_PARTITION, Source.INCOMING)
        return
    taken = take_incoming(context, conversation, envelope, record.offset, record.timestamp_ms)
    if conversation is None and taken is not None:
        store.add(taken)


def _take_message(
    context: Context, store: ConversationStore, record: Record, envelope: Envelope | str, place: tuple[int, int]
) -> None:
    """Takes a message; `place` is its partition and the number of partitions."""
    if isinstance(envelope, str):
        context.refuse(record.offset, None, envelope)
        return
    conversation = store.taken.get(envelope.conversation_id)
    partition, partitions = place
    if conversation is None and envelope.begin and murmur2(record.key or b"", partitions) != partition:
        context.refuse(record.offset, None, _WRONG_PARTITION)
        return
    taken = take(context, conversation, envelope, record.offset, record.timestamp_ms)
    if conversation is None and taken is not None:
        store.add(taken)


def _finish(
    shard: RouterShard, context: Context, settings: RouterShardSettings, topics: Topics, partition: int
) -> list[OutputRow]:
    """Closes the batch: packs the conversations, numbers the decisions. Returns the rows of views and decisions."""
    store, clock = shard.conversations, shard.clock
    rows: list[OutputRow] = []
    for conversation, before in views_of(store):
        rows += conversation_rows(conversation, before, topics, partition, clock)
    shard.packed, (wake_ms, due_ms), lowest = store.pack(settings.conversations, clock.now_ms)
    wake_ms = min(wake_ms, _wake_at(shard, due_ms, context.broker_ms))
    shard.wake_ms = min(wake_ms, context.questions.next_ms(), context.mirrors.next_ms())
    ends = shard.ends[0], shard.ends[1]
    deleted = clean_up(shard.clean_up, clock, settings.keep_ms, ends, lowest)
    if deleted is not None:
        context.decisions.append(deleted)
        shard.done[tasks.RESUME_CLEAN_UP.name] += 1
    values = list(decision_records(context.decisions, settings.generation, shard.number, ends))
    shard.number += len(values)
    return rows + [(topics.service_decisions, None, value, None, partition) for value in values]
