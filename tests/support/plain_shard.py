"""A router's shard without Spark: the plain core, driven in the order of the product's step_shard.

Between two batches it keeps every conversation as a snapshot, so each batch tests these. It must not be clever: tests
compare the product's shard with it.
"""

import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from streaming.core.conversations import due_work, mirrors, questions, snapshot
from streaming.core.conversations.context import Context
from streaming.core.conversations.conversation import INITIATOR, TARGET, Conversation
from streaming.core.conversations.decisions import UNKNOWN_CONVERSATION, Decision, Deliver
from streaming.core.conversations.dispatcher import take_incoming
from streaming.core.conversations.mirrors import Mirrors
from streaming.core.conversations.questions import Questions
from streaming.core.conversations.settings import ConversationSettings
from streaming.core.conversations.statements import UNKNOWN, take
from streaming.core.conversations.step import Step
from streaming.core.routing import snapshot as definitions_snapshot
from streaming.core.routing.conversation import Instance
from streaming.core.routing.databases import Changes
from streaming.core.routing.definition_rules import RefusedDefinitionError
from streaming.core.routing.definitions import Definitions
from streaming.core.times import FOREVER_MS, Clock
from streaming.spark.routing.shard_records import Partition
from streaming.spark.routing.take_news import ask_for_routes, take_news
from streaming.wire.envelope import Envelope
from streaming.wire.service_commands import ServiceCommand
from streaming.wire.service_decisions import ConnectedReport, News, NotSentReport

PARTITIONS = 2
SECRET = "a secret"  # noqa: S105  (of tests)


@dataclass(frozen=True)
class Returned:
    """A report of the transport."""

    conversation_id: str
    begun: int | None
    is_initiator: bool
    round: int
    refused: Sequence[Deliver]
    reason: str
    number: int | None = None
    is_lasting: bool = False


@dataclass(frozen=True)
class Retried:
    """A request to decide about a conversation's held messages now."""

    conversation_id: str


ShardReport = Returned | Retried | NotSentReport | News


@dataclass(frozen=True)
class Batch:
    """The input of a batch.

    Attributes:
        at_ms: Its timestamp.
        commands: Commands with their records' timestamps.
        reports: Reports about this shard, and requests.
        messages: Offset, timestamp and envelope of each message.
        incoming: Offset, timestamp and envelope of each message from another instance.
        ahead_ms: How much the router's clock, which gives `at_ms`, is ahead of the brokers' clock.
    """

    at_ms: int
    commands: Sequence[tuple[ServiceCommand, int]] = ()
    reports: Sequence[ShardReport] = ()
    messages: Sequence[tuple[int, int, Envelope]] = ()
    incoming: Sequence[tuple[int, int, Envelope]] = ()
    ahead_ms: int = 0

    @property
    def tick_ms(self) -> int:
        """The timestamp of its tick."""
        return self.at_ms - self.ahead_ms

    @property
    def broker_ms(self) -> int:
        """The timestamp of its newest record."""
        said = (at_ms for _, at_ms, _ in (*self.messages, *self.incoming))
        newest = [self.tick_ms, *said, *(at_ms for _, at_ms in self.commands)]
        return max(newest)

    @property
    def read_ms(self) -> int:
        """The instant up to which earlier batches have read all records."""
        return min([self.tick_ms, *(each[1] for rows in (self.messages, self.incoming) for each in rows)])


@dataclass(frozen=True)
class Stored:
    """The state between two batches."""

    clock: tuple[int, int]
    definitions: definitions_snapshot.Snapshot
    conversations: dict[str, snapshot.Snapshot]
    wakes: dict[str, int]
    agains: dict[str, int]
    dues: dict[str, int]
    held: int
    away: dict[str, int]
    questions: questions.Snapshot
    open_questions: list[tuple[str, str, str]]
    mirrors: mirrors.Snapshot
    round_trip_ms: int


def lowest(conversation: Conversation) -> int:
    """Returns the lowest offset in service-messages that a conversation refers to, for sorting."""
    found = conversation.lowest_offset()
    return FOREVER_MS if found is None else found


@dataclass
class PlainShard:
    """A shard.

    Attributes:
        settings: The settings of conversations.
        instance: The instance.
        clock: Its clock.
        definitions: The definitions.
        conversations: Id -> conversation, as a snapshot.
        wakes: Id -> the instant at which the conversation is due, by the shard's clock.
        agains: Id -> the instant at which its held messages are looked at again.
        dues: Id -> the instant at which its lifetime is over or a timer is due, by the brokers' clock.
        held: The number of messages that it holds.
        touched: The conversations that the last batch has taken up and not removed, by id.
        away: Address -> the instant until which it counts as not reachable.
        number: Its partition.
        partitions: The number of partitions.
        questions: The questions to the configuration service.
        mirrors: The mirrored routes that have been used.
        round_trip_ms: The time until other instances acknowledge.
        starts: For each message of the last batch, the number of decisions before it.
    """

    settings: ConversationSettings
    instance: Instance
    clock: Clock = field(default_factory=lambda: Clock(0, 0))
    definitions: Definitions = field(default_factory=Definitions.of_new_instance)
    conversations: dict[str, snapshot.Snapshot] = field(default_factory=dict)
    wakes: dict[str, int] = field(default_factory=dict)
    agains: dict[str, int] = field(default_factory=dict)
    dues: dict[str, int] = field(default_factory=dict)
    held: int = 0
    touched: dict[str, Conversation] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    away: dict[str, int] = field(default_factory=dict)
    number: int = 0
    partitions: int = PARTITIONS
    questions: Questions = field(default_factory=Questions)
    mirrors: Mirrors = field(default_factory=Mirrors)
    round_trip_ms: int = 0
    # Whether its router may go on on another machine, with another clock.
    is_moved: ClassVar[bool] = True

    def stored(self) -> Stored:
        """Returns the state; later batches do not change it."""
        definitions = definitions_snapshot.take(self.definitions)
        clock = self.clock.now_ms, self.clock.batch_ms
        return Stored(
            clock,
            definitions,
            {**self.conversations},
            {**self.wakes},
            {**self.agains},
            {**self.dues},
            self.held,
            {**self.away},
            self.questions.snapshot(),
            self.questions.open(),
            copy.deepcopy(self.mirrors.snapshot()),
            self.round_trip_ms,
        )

    def restore(self, stored: Stored) -> None:
        """Goes back to a state."""
        self.clock = Clock(*stored.clock)
        self.definitions = definitions_snapshot.restore(stored.definitions)
        self.conversations, self.wakes, self.dues = {**stored.conversations}, {**stored.wakes}, {**stored.dues}
        self.agains = {**stored.agains}
        self.held, self.away = stored.held, {**stored.away}
        self.round_trip_ms = stored.round_trip_ms
        self.questions = Questions(stored.questions, stored.open_questions)
        self.mirrors = Mirrors(copy.deepcopy(stored.mirrors))

    def step(self, batch: Batch) -> list[Decision]:
        """Takes the shard through a batch; returns its decisions."""
        self.clock.advance(batch.at_ms)
        changes = self._define(batch)
        now_ms, settings = self.clock.now_ms, self.settings
        counts = len(self.conversations), sum(self.conversation(each).is_incoming() for each in self.conversations)
        context = Context(
            self.definitions,
            self.instance,
            settings,
            now_ms,
            batch.broker_ms,
            self.held,
            *counts,
            self.away,
            self.questions,
            self.mirrors,
            self.round_trip_ms,
            batch.read_ms,
        )
        self.touched = {}
        news = [report for report in batch.reports if isinstance(report, News)]
        needed = take_news(context, news, self.away, self, changes)
        for report in batch.reports:
            self._take_report(context, report)
        self._take_incoming(context, batch)
        self._send_again(context, news)
        left = {name: min(self.wakes[name] - now_ms, self.dues[name] - batch.read_ms) for name in self.wakes}
        due = self._due(left)
        again = {name: self.agains.get(name, FOREVER_MS) - now_ms for name, left_ms in left.items() if left_ms > 0}
        due += self._due(again)
        for conversation in due[: settings.max_looked_at]:
            if context.let_go <= 0:
                break
            name = conversation.conversation_id
            self.wakes[name] = self.agains[name] = now_ms + 1  # looked at
            if not due_work.look(context, conversation):
                del self.conversations[name], self.touched[name]
                for instants in (self.wakes, self.dues, self.agains):
                    instants.pop(name, None)
        if self.number == 0:
            ask_for_routes(context, needed, self, SECRET, Partition(self.number, self.partitions))
        self.starts = []
        for offset, timestamp_ms, envelope in batch.messages:
            self.starts.append(len(context.decisions))
            name = envelope.conversation_id
            before = self._open(name) if name in self.touched or name in self.conversations else None
            after = take(context, before, envelope, offset, timestamp_ms)
            if after is not None:
                self.touched[name] = after
        self.starts.append(len(context.decisions))
        for _, conversation in sorted(self.touched.items()):
            Step(context, conversation).acknowledge()
        self._close(now_ms)
        context.close()
        self.held, self.round_trip_ms = context.waiting_count, context.round_trip_ms
        return context.decisions

    def conversation(self, conversation_id: str) -> Conversation:
        """Returns a conversation."""
        return snapshot.restore(self.conversations[conversation_id])

    def _due(self, left: dict[str, int]) -> list[Conversation]:
        """Returns the conversations that are due, in order."""
        due = [self._open(name) for name, left_ms in left.items() if left_ms <= 0]
        return sorted(due, key=lambda each: (left[each.conversation_id], lowest(each), each.conversation_id))

    def _define(self, batch: Batch) -> Changes:
        self.definitions.advance(batch.tick_ms)
        for command, timestamp_ms in batch.commands:
            try:
                command.apply(self.definitions, timestamp_ms)
            except RefusedDefinitionError:
                continue
        return self.definitions.take_changes()

    def find(self, conversation_id: str) -> Conversation | None:
        """Takes up a conversation; returns None if there is none."""
        return self._open(conversation_id) if conversation_id in self.conversations else None

    def add(self, conversation: Conversation) -> None:
        """Adds a question of the router."""
        self.touched[conversation.conversation_id] = conversation

    def held_of(self, services: Collection[str]) -> set[str]:
        """Returns the services, among the given services, for which a conversation holds messages."""
        found = [self.conversation(each) for each in self.conversations]
        return {
            each.services[side]
            for each in found
            for side in (INITIATOR, TARGET)
            if each.directions[side].waiting and each.services[side] in services
        }

    def mark(self, changes: Changes) -> None:
        """Makes the conversations due that changed definitions concern."""
        if not changes:
            return
        for name in self.conversations:
            conversation = self.conversation(name)
            for side in (INITIATOR, TARGET):
                endpoint, service = conversation.endpoints[side], conversation.services[side]
                is_held = bool(conversation.directions[side].waiting)
                is_routed = is_held and (changes.is_all or service in changes.routed)
                if is_routed or (endpoint is not None and (endpoint.database, service) in changes.services):
                    self.wakes[name] = 0

    def _send_again(self, context: Context, news: Sequence[News]) -> None:
        reached = {each.address for each in news if isinstance(each, ConnectedReport) and each.is_connected}
        for name in {**self.conversations, **self.touched} if reached else ():
            far = (self.touched.get(name) or self.conversation(name)).far
            if far is not None and far.address in reached:
                due_work.send_again(context, self._open(name))

    def _take_report(self, context: Context, report: ShardReport) -> None:
        if isinstance(report, News):
            return
        name = report.conversation_id
        conversation = self._open(name) if name in self.conversations else None
        if isinstance(report, Retried):
            if conversation is not None:
                due_work.retry(context, conversation)
            return
        if isinstance(report, NotSentReport):
            if conversation is not None:
                place = report.is_initiator, report.message_sequence_number
                due_work.end_unsendable(context, conversation, *place, report.reason)
            return
        if conversation is None or conversation.begun != report.begun:
            for each in report.refused:
                if each.offset is not None:
                    context.refuse(each.offset, UNKNOWN_CONVERSATION, UNKNOWN, each.source)
            return
        due_work.take_back(
            context,
            conversation,
            report.is_initiator,
            report.round,
            [replace(each) for each in report.refused],
            report.number,
            report.reason,
            is_lasting=report.is_lasting,
        )

    def _take_incoming(self, context: Context, batch: Batch) -> None:
        for offset, timestamp_ms, envelope in batch.incoming:
            name = envelope.conversation_id
            before = self._open(name) if name in self.touched or name in self.conversations else None
            after = take_incoming(context, before, envelope, offset, timestamp_ms)
            if after is not None:
                self.touched[name] = after

    def _open(self, name: str) -> Conversation:
        if name not in self.touched:
            self.touched[name] = self.conversation(name)
        return self.touched[name]

    def _close(self, now_ms: int) -> None:
        for name, conversation in self.touched.items():
            taken = self.conversations[name] = snapshot.take(conversation)
            again = snapshot.restore(taken)
            again.is_view_stale = conversation.is_view_stale
            self.dues[name] = conversation.due_ms()
            assert again == conversation, f"a snapshot has lost something: {again} {conversation}"
            # A conversation that was due, but not looked at because of the limit, stays due.
            if self.wakes.get(name, now_ms + 1) > now_ms:
                self.wakes[name] = due_work.wake_ms(conversation, self.settings)
            again_ms, before_ms = due_work.again_ms(conversation, now_ms), self.agains.get(name, FOREVER_MS)
            # As in the product: what is not looked at keeps its instant.
            self.agains[name] = before_ms if before_ms <= now_ms and again_ms != FOREVER_MS else again_ms
