"""Three instances in one process, with a network between them that delays, repeats, reorders, loses and is cut.

Each instance has the plain shard, the product's Carrying, and the records that the product writes. The body of a
message names the record with which a program said it.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from streaming.core.connections.forwarder import TIME_OVER
from streaming.core.conversations.conversation import TARGET
from streaming.core.conversations.decision_batches import Carrying, DecisionBatch, Failure, Position
from streaming.core.conversations.decisions import (
    Answered,
    AskRole,
    DeadLetter,
    Deliver,
    Drop,
    Forward,
    NeedRoute,
    Transmit,
)
from streaming.core.conversations.endpoint_states import State
from streaming.core.conversations.kinds import Source
from streaming.core.conversations.settings import ConversationSettings
from streaming.core.routing.conversation import Instance
from streaming.wire.between_instances import forwarded, in_time, transmitted
from streaming.wire.decision_fields import fields_of
from streaming.wire.delivered import Row
from streaming.wire.envelope import HEADER, Envelope, decode_envelope, decode_incoming
from streaming.wire.headers import Headers
from streaming.wire.service_commands import ServiceCommand
from streaming.wire.service_decisions import (
    ConnectedReport,
    News,
    NotSentReport,
    RefusedReport,
    RoleReport,
    decode_report,
    encoder,
    news_of,
    report_of,
)
from streaming.wire.service_definitions import decode_role, view_of
from tests.support.conversation_reasons import NO_TOPIC, Place, check_held, places_of
from tests.support.plain_shard import Batch, PlainShard, Retried, Returned, ShardReport

MakeShard = Callable[[ConversationSettings, Instance], PlainShard]

_LOST, _REPEATED = 0.1, 0.1
_DELAYS_MS = (0, 0, 10, 100, 1_000, 6_000)


@dataclass(frozen=True)
class Record:
    """A Kafka record, with the methods of confluent_kafka's that the product calls."""

    its_key: bytes | None
    its_value: bytes | None
    its_headers: Headers

    def key(self) -> bytes | None:
        """Returns the key."""
        return self.its_key

    def value(self) -> bytes | None:
        """Returns the value."""
        return self.its_value

    def headers(self) -> Headers:
        """Returns the headers."""
        return self.its_headers


@dataclass
class Network:
    """The network.

    Attributes:
        random: The source of randomness.
        now_ms: The wall clock.
        sites: Address -> instance.
        cuts: The pairs of addresses, sender and receiver, between which nothing arrives.
        is_bad: Whether records are lost, repeated and delayed.
        on_the_way: Due instant, number, receiver's address, and record.
        counts: What has happened to records.
    """

    random: Random
    now_ms: int = 1_000_000
    sites: dict[str, "Site"] = field(default_factory=dict)
    cuts: set[tuple[str, str]] = field(default_factory=set)
    is_bad: bool = True
    on_the_way: list[tuple[int, int, str, Row]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def send(self, sender: str, receiver: str, row: Row) -> None:
        """Takes a record on its way, or loses it."""
        chance = self.random.random
        self.counts["sent"] += 1
        if (sender, receiver) in self.cuts or receiver not in self.sites or (self.is_bad and chance() < _LOST):
            self.counts["lost"] += 1
            return
        for _ in range(2 if self.is_bad and chance() < _REPEATED else 1):
            delay_ms = self.random.choice(_DELAYS_MS) if self.is_bad else 0
            self.counts["records"] += 1
            self.on_the_way.append((self.now_ms + delay_ms, self.counts["records"], receiver, row))

    def arrive(self) -> None:
        """Delivers the records that are due."""
        due = sorted(each for each in self.on_the_way if each[0] <= self.now_ms)
        self.on_the_way = [each for each in self.on_the_way if each[0] > self.now_ms]
        for _, _, receiver, row in due:
            self.sites[receiver].accept(row)


class Site:
    """An instance.

    Attributes:
        address: Its address.
        shard: Its router's shard.
        messages: service-messages.
        incoming: service-incoming.
        commands: The commands that its router has not read.
        missing: The queues whose topics are missing.
        delivered: The deliveries to its queues, with the bodies.
        dead_letters: Reasons of dead letters, by the body.
        drops: Number -> how many records were dropped.
        asked: How often it has asked for roles.
        asked_addresses: The addresses that it has asked.
        router_ahead_ms: How much the clock of its router's machine is ahead.
        brokers_ahead_ms: How much the clock of its brokers is ahead.
    """

    def __init__(
        self, network: Network, address: str, settings: ConversationSettings, make: MakeShard = PlainShard
    ) -> None:
        self.network = network
        self.address = address
        self.shard = make(settings, Instance(frozenset({address}), is_forwarding=True))
        self.messages: list[tuple[int, Record]] = []
        self.incoming: list[Row] = []
        self._arrived_ms: list[int] = []
        self.commands: list[ServiceCommand] = []
        self.missing: set[str] = set()
        self.delivered: list[tuple[Deliver, bytes]] = []
        self.dead_letters: dict[bytes, str] = {}
        self.drops: Counter[int | None] = Counter()
        self.asked = 0
        self.asked_addresses: list[str] = []
        self.router_ahead_ms = self.brokers_ahead_ms = 0
        self._reports: list[ShardReport] = []
        self._log: list[DecisionBatch] = []
        self._read = [0, 0]
        self._numbers = 0
        self._carrying = Carrying(Position(), {}, 0)
        network.sites[address] = self

    @property
    def broker_ms(self) -> int:
        """Returns the time by its brokers' clock."""
        return self.network.now_ms + self.brokers_ahead_ms

    @property
    def is_idle(self) -> bool:
        """Returns whether nothing is unread and nothing is undone."""
        is_read = self._read == [len(self.messages), len(self.incoming)] and not self.commands and not self._reports
        return is_read and self.is_idle_transport

    @property
    def is_idle_transport(self) -> bool:
        """Returns whether all decisions have been carried out."""
        return self._carrying.position.offset == len(self._log)

    def state(self, conversation_id: str, side: int) -> State:
        """Returns the state of an endpoint that is here."""
        conversations = self.shard.conversations
        endpoint = (
            self.shard.conversation(conversation_id).endpoints[side] if conversation_id in conversations else None
        )
        return State.ABSENT if endpoint is None else endpoint.state

    def held(self, conversation_id: str) -> list[bytes]:
        """Returns the bodies of messages that wait for a target that is here."""
        if conversation_id not in self.shard.conversations:
            return []
        waiting = self.shard.conversation(conversation_id).directions[TARGET].waiting
        records = [self._record(Source.INCOMING, item.offset) for item in waiting]
        return [b"" if each is None else each.its_value or b"" for each in records]

    @staticmethod
    def envelope(record: Record) -> Envelope:
        """Returns the envelope of a record of service-messages."""
        return decode_envelope(record.headers())

    def say(self, envelope: Envelope) -> bytes:
        """Writes a statement into service-messages; returns its body."""
        body = f"{self.address} {len(self.messages)}".encode()
        record = Record(envelope.conversation_id.encode(), body, [(HEADER, encoder.encode(envelope))])
        self.messages.append((self.broker_ms, record))
        return body

    def receive(self, envelope: Envelope) -> None:
        """Writes a record into service-incoming, as any other instance can."""
        self.accept((envelope.conversation_id.encode(), b"", [(HEADER, encoder.encode(envelope))]))

    def accept(self, row: Row) -> None:
        """Takes a record into service-incoming."""
        self.incoming.append(row)
        self._arrived_ms.append(self.broker_ms)

    def connected(self, address: str, *, is_connected: bool) -> None:
        """Reports whether another instance can be reached."""
        self._reports.append(ConnectedReport(address, is_connected))

    def cannot_send(self, conversation_id: str, sequence: int) -> None:
        """Reports that a message of the initiator can never be sent."""
        self._reports.append(NotSentReport(conversation_id, True, sequence, "it is too large there"))

    def retry(self, conversation_id: str) -> None:
        """Asks the router to decide about the held messages of a conversation."""
        self._reports.append(Retried(conversation_id))

    def route(self, *, is_whole: bool = False) -> None:
        """Takes a batch of the router."""
        ends = [len(self.messages), len(self.incoming)]
        if not is_whole:
            ends = [self.network.random.randint(read, end) for read, end in zip(self._read, ends, strict=True)]
        messages = [
            (offset, self.messages[offset][0], decode_envelope(self.messages[offset][1].headers()))
            for offset in range(self._read[0], ends[0])
        ]
        incoming = []
        for offset in range(self._read[1], ends[1]):
            [value] = [value for name, value in self.incoming[offset][2] if name == HEADER]
            incoming.append((offset, self._arrived_ms[offset], decode_incoming(value, len(value or b""))))
        batch = Batch(
            self.network.now_ms + self.router_ahead_ms,
            [(each, self.broker_ms) for each in self.commands],
            self._reports,
            messages,
            incoming,
            self.router_ahead_ms - self.brokers_ahead_ms,
        )
        self.commands, self._reports, self._read = [], [], ends
        before = self.shard.stored()
        decisions = self.shard.step(batch)
        if self.network.random.random() < 0.1:
            self.shard.restore(before)
            assert self.shard.step(batch) == decisions, "a batch that was done again has decided otherwise"
        if decisions:
            self._numbers += 1
            number = self._numbers
            value = encoder.encode([fields_of(each) for each in decisions])
            self._log.append(DecisionBatch(len(self._log), 1, number, number, (ends[0], ends[1]), decisions))
            self.network.counts["bytes of decisions"] += len(value)

    def check_held(self) -> None:
        """Checks that every message that is held has a reason that is true."""
        check_held(self.shard, self._to_be_returned)

    def _to_be_returned(self) -> set[Place]:
        undone = [each for record in self._log[self._carrying.position.offset :] for each in record.decisions]
        returned = [each for report in self._reports if isinstance(report, Returned) for each in report.refused]
        return places_of([*undone, *returned])

    def go_on(self) -> None:
        """Takes one batch of all that is unread, and carries out all decisions."""
        self.route(is_whole=True)
        while not self.is_idle_transport:
            self.transport("COMMIT")

    def transport(self, outcome: str) -> None:
        """Carries out one record of decisions. A rollback takes no message to another instance back."""
        carrying = self._carrying
        offset = carrying.position.offset
        if offset == len(self._log):
            return
        done, dead, drops, news = self._carry_out(self._log[offset])
        if outcome == "ABORT":
            carrying.roll_back()
            return
        self.delivered += done
        self.dead_letters |= dead
        self.drops += drops
        self._reports += news
        for report in carrying.reports:
            fields = decode_report(encoder.encode(report_of(0, report)))
            assert isinstance(fields, RefusedReport)
            refused = fields.deliveries()
            direction, failure = report.sender, report.failure
            self._reports.append(
                Returned(direction[0], report.begun, direction[1], report.round, refused, failure.reason)
            )
        carrying.commit(len(self._log))

    def _carry_out(
        self, record: DecisionBatch
    ) -> tuple[list[tuple[Deliver, bytes]], dict[bytes, str], Counter[int | None], list[News]]:
        """Carries out a record. Returns deliveries, dead letters, drops and news, which a commit would make true."""
        done: list[tuple[Deliver, bytes]] = []
        dead: dict[bytes, str] = {}
        drops: Counter[int | None] = Counter()
        news: list[News] = []
        for decision in self._carrying.take(record):
            if isinstance(decision, Deliver):
                body = self._record(decision.source, decision.offset)
                if decision.queue in self.missing:
                    self._carrying.fail(decision, Failure(is_lasting=False, reason=NO_TOPIC))
                else:
                    value = (decision.body or "").encode() if body is None else body.value()
                    done.append((decision, value or b""))
            elif isinstance(decision, Transmit | Forward):
                if not self._send_away(decision):
                    drops[TIME_OVER] += 1
            elif isinstance(decision, DeadLetter):
                refused = self._record(decision.source, decision.offset)
                dead[refused.its_value or b"" if refused else b""] = decision.reason
            elif isinstance(decision, Drop):
                drops[decision.number] += 1
            elif isinstance(decision, NeedRoute | Answered):
                news.append(news_of(decision))
            elif isinstance(decision, AskRole):
                self.asked += 1
                addresses = dict.fromkeys((decision.address, decision.mirror_address))
                self.asked_addresses += addresses
                news += [self._role(decision.broker_instance, at) for at in addresses]
        return done, dead, drops, news

    def _send_away(self, decision: Transmit | Forward) -> bool:
        """Sends a message to another instance. Returns whether there was time left."""
        row: Row | None
        if isinstance(decision, Transmit):
            timely = in_time(decision, self.broker_ms)
            message = self._record(Source.MESSAGES, decision.offset)
            row = None if timely is None else transmitted(timely, message)  # type: ignore[arg-type]
        else:
            waited_ms = self.broker_ms - self._arrived_ms[decision.offset]
            message = self._record(Source.INCOMING, decision.offset)
            row = forwarded(decision, message, waited_ms)  # type: ignore[arg-type]
            self.network.counts["forwarded"] += row is not None
        if row is not None:
            self.network.send(self.address, decision.address, row)
        return row is not None

    def _role(self, instance: str, address: str) -> RoleReport:
        """Returns what another instance says about its database."""
        site = self.network.sites.get(address)
        if site is None or (self.address, address) in self.network.cuts:
            return RoleReport(instance, address)
        rows = [decode_role(encoder.encode(row)) for row in view_of(site.shard.definitions).values()]
        roles = {row[0]: row[1:] for row in rows if row is not None}
        return RoleReport(instance, address, *roles.get(instance, ()))

    def _record(self, source: Source, offset: int | None) -> Record | None:
        if offset is None or offset < 0:
            return None
        return self.messages[offset][1] if source == Source.MESSAGES else Record(*self.incoming[offset])
