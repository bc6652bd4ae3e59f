"""An instance of two partitions with everything that fails: its log, its router, and its transports.

The transport is the product's Carrying and marks, with the records that the product writes. Topics of queues go away,
and some messages are too large.
"""

from collections.abc import Sequence
from random import Random
from zlib import crc32

from streaming.core.conversations.conversation import TARGET
from streaming.core.conversations.decision_batches import Carrying, Failure, Position, Sender
from streaming.core.conversations.decisions import Answered, CleanUp, DeadLetter, Deliver, NeedRoute, Transmit
from streaming.core.conversations.kinds import Kind
from streaming.core.routing.routing_table import ROUTERS_SERVICE
from streaming.wire.envelope import Envelope
from streaming.wire.service_commands import CreateRoute, ServiceCommand
from streaming.wire.service_decisions import (
    News,
    RefusedReport,
    RetryReport,
    decode_decisions,
    decode_mark,
    decode_refusal,
    decode_report,
    encoder,
    mark_of,
    news_of,
    refusal_record,
    report_of,
)
from tests.support import conversation_reasons as reasons
from tests.support.conversation_reasons import NO_TOPIC, TOO_LARGE
from tests.support.conversation_router import Log, Partition, Router
from tests.support.conversation_truth import Place
from tests.support.plain_shard import PlainShard


class Transport:
    """The transport of a partition. What it stores and writes takes effect only with a commit."""

    def __init__(self, world: "World", partition: Partition) -> None:
        self._world = world
        self._partition = partition
        self._mark = encoder.encode(mark_of(Position(), 0))
        self._refusals: dict[Sender, bytes] = {}
        self.carrying = Carrying(Position(), {}, 0)

    @property
    def is_done(self) -> bool:
        """Returns whether the transport has committed all written records."""
        return self.carrying.position.offset == len(self._partition.log)

    def restart(self) -> None:
        """Begins at the stored marks, as another transport does when it gets the partition."""
        mark = decode_mark(self._mark)
        refusals = {direction: decode_refusal(each).refusal() for direction, each in self._refusals.items()}
        assert mark.refusals == len(refusals), "the mark does not know how many refusals there are"
        self.carrying = Carrying(mark.position(), refusals, len(self._partition.log))

    def run(self, records: int, decisions: int, outcome: str) -> None:
        """Carries out some records in one transaction.

        Args:
            records: The most records.
            decisions: The most decisions.
            outcome: COMMIT, ABORT, or CRASH before the commit, or DIES after it.
        """
        done: list[tuple[Deliver, Place | None]] = []
        buried: list[tuple[int, str]] = []
        news: list[News] = []
        clean_up = self._carry_out(records, decisions, done, buried, news)
        if outcome == "ABORT":
            self.carrying.roll_back()
        elif outcome == "CRASH":
            self.restart()
        else:
            self._world.log.reports += news
            self._commit(done, buried, clean_up)
            if outcome == "DIES":
                self.restart()

    def _carry_out(
        self,
        records: int,
        decisions: int,
        done: list[tuple[Deliver, Place | None]],
        buried: list[tuple[int, str]],
        news: list[News],
    ) -> CleanUp | None:
        log, carrying, clean_up = self._partition.log, self.carrying, None
        while carrying.position.offset < len(log) and records > 0:
            offset = carrying.position.offset
            record = decode_decisions(log[offset]).batch(offset)
            records -= 1
            for decision in carrying.take(record):
                if isinstance(decision, Deliver):
                    place = self._partition.places[record.number][carrying.position.done - 1]
                    self._deliver(decision, place, done, buried)
                elif isinstance(decision, CleanUp):
                    clean_up = decision
                elif isinstance(decision, Transmit):
                    self._read(max(decision.offset or 0, self._partition.deleted_below))  # the network loses it
                elif isinstance(decision, NeedRoute | Answered):
                    news.append(news_of(decision))
                else:
                    assert isinstance(decision, DeadLetter)
                    self._read(decision.offset)
                    buried.append((decision.offset, decision.reason))
                decisions -= 1
                if decisions <= 0:
                    return clean_up
        return clean_up

    def _deliver(
        self,
        delivery: Deliver,
        place: Place | None,
        done: list[tuple[Deliver, Place | None]],
        buried: list[tuple[int, str]],
    ) -> None:
        failure = self._world.failure(self._partition.number, delivery)
        if delivery.offset is not None:
            self._read(delivery.offset)
        if failure is None:
            done.append((delivery, place))
            return
        if failure.is_lasting:
            if delivery.offset is not None:
                buried.append((delivery.offset, failure.reason))
            if place is not None and delivery.kind == Kind.ERROR:
                self._partition.truth.given_up.add(place)
        self.carrying.fail(delivery, failure)

    def _read(self, offset: int) -> None:
        assert offset >= self._partition.deleted_below, f"record {offset} was deleted before it was carried out"

    def _commit(
        self, done: list[tuple[Deliver, Place | None]], buried: list[tuple[int, str]], clean_up: CleanUp | None
    ) -> None:
        truth, carrying = self._partition.truth, self.carrying
        for delivery, place in done:
            truth.carried_out(delivery, place)
            if delivery.body is not None:
                self._world.answer(self._partition.number, delivery)
        for offset, reason in buried:
            truth.dead_letter(offset, reason)
        for report in carrying.reports:
            self._world.log.reports.append(decode_report(encoder.encode(report_of(self._partition.number, report))))
        for direction, refusal in carrying.changed_refusals().items():
            if refusal is None:
                self._refusals.pop(direction, None)
            else:
                self._refusals[direction] = encoder.encode(refusal_record(refusal))
        self._mark = encoder.encode(mark_of(carrying.position, len(carrying.refusals)))
        carrying.commit(len(self._partition.log))
        if clean_up is not None:
            held = carrying.position.keep_from
            below = clean_up.messages if held is None else min(clean_up.messages, held)
            self._partition.deleted_below = max(self._partition.deleted_below, below)


class World:
    """The instance, with its log, its router and its transports.

    Attributes:
        log: All topics.
        router: The router.
        transports: The transport of each partition.
        missing: The queues whose topics are missing.
        too_large: The number of messages of 1,000 that are too large for their topic.
        is_helpful: Whether the configuration service ends each question.
    """

    def __init__(self, random: Random, shards: Sequence[PlainShard]) -> None:
        partitions = [Partition(number, shard) for number, shard in enumerate(shards)]
        self.log = Log(random, partitions)
        self.router = Router(self.log)
        self.transports = [Transport(self, each) for each in partitions]
        self.missing: set[str] = set()
        self.too_large = 0
        self.is_helpful = False

    def say(self, partition: int, envelope: Envelope) -> None:
        """Writes a statement into service-messages."""
        self.log.partitions[partition].messages.append((self.log.now_ms, envelope))

    def answer(self, partition: int, question: Deliver) -> None:
        """Answers for the configuration service: creates a route or none, and ends the question or keeps silent."""
        random, database = self.log.random, question.database
        if random.random() < 0.5:
            service = question.body.split("SERVICE_NAME>")[1].removesuffix("</") if question.body else ""
            self.define(CreateRoute(database, f"to {service}", "LOCAL", service, lifetime_s=random.choice((None, 5))))
        kind = "END" if self.is_helpful else random.choice(("END", "END", "ERROR", "MESSAGE", "", "CLEANUP"))
        if kind:
            name, asker = question.conversation_id, question.from_service
            self.say(partition, Envelope(kind, name, False, question.service, database, asker))  # type: ignore[arg-type]

    def end_questions(self) -> None:
        """Ends the questions that were read but not answered. From now on, no question is left open."""
        self.is_helpful = True
        for partition in self.log.partitions:
            for name in partition.shard.conversations:
                conversation = partition.shard.conversation(name)
                asker, service = conversation.services
                target = conversation.endpoints[TARGET]
                if asker == ROUTERS_SERVICE and target is not None:
                    self.say(partition.number, Envelope("END", name, False, service, target.database, asker))

    def define(self, command: ServiceCommand) -> None:
        """Writes a command into service-commands."""
        self.log.commands.append((command, self.log.now_ms))

    def retry(self, conversation_id: str) -> None:
        """Writes a request into service-reports."""
        self.log.reports.append(RetryReport(conversation_id))

    def failure(self, partition: int, delivery: Deliver) -> Failure | None:
        """Returns why a delivery fails; None if it succeeds."""
        if delivery.queue in self.missing:
            return Failure(is_lasting=False, reason=NO_TOPIC)
        # The same message is always too large.
        name = f"{partition} {delivery.conversation_id} {delivery.kind} {delivery.offset} {delivery.sequence}"
        if crc32(name.encode()) % 1_000 < self.too_large:
            return Failure(is_lasting=True, reason=TOO_LARGE)
        return None

    def check_held(self) -> None:
        """Checks that every message that is held has a reason that is true."""
        for partition, transport in zip(self.log.partitions, self.transports, strict=True):
            done = transport.carrying.position.offset

            def to_be_returned(partition: Partition = partition, done: int = done) -> set[reasons.Place]:
                undone = [*partition.log[done:], *partition.pending]
                found = [each for value in undone for each in decode_decisions(value).batch(0).decisions]
                for report in self.log.reports[self.router.reports_read :]:
                    if isinstance(report, RefusedReport):
                        found += report.deliveries()
                return reasons.places_of(found)

            reasons.check_held(partition.shard, to_be_returned)
