"""One transaction: the decisions that take effect together, with their reports and marks."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
from confluent_kafka import Message

from streaming.core.conversations import decisions
from streaming.core.conversations.decision_batches import DecisionBatch, Failure
from streaming.core.conversations.kinds import Source
from streaming.core.conversations.marks import LostDecisionsError
from streaming.daemons.transport.connections import Connections
from streaming.daemons.transport.queue_topics import QueueTopics
from streaming.daemons.transport.records import Records
from streaming.daemons.transport.share import Partition, Share
from streaming.kafka.transactions import TransactionalProducer
from streaming.wire import service_decisions
from streaming.wire.between_instances import in_time, transmitted
from streaming.wire.delivered import dead_letter, delivered
from streaming.wire.envelope import MAX_INCOMING_BYTES, decode_envelope
from streaming.wire.headers import Headers
from streaming.wire.input_records import MessageArrived
from streaming.wire.record_decoders import InvalidRecordError, RecordDecoder
from streaming.wire.topics import Topics

# The limits of a transaction. Readers of committed records wait for its end, so it must be short.
MAX_DECISIONS = 10_000
MAX_BYTES = 32 * 1024 * 1024
_MAX_S = 0.5
_CLOCK_EVERY = 16

# A decision: partition, offset of its record, and its index there; _WHOLE: the record itself.
DecisionId = tuple[int, int, int]
_WHOLE = -1
# A record that was written for a decision, and whether its topic is a queue's. Otherwise it is a dead letter.
Written = tuple[DecisionId, bool]


@dataclass
class Context:
    """The objects that all transactions use.

    Attributes:
        topics: The topics.
        share: The partitions of this transport.
        records: The records of service-messages and service-incoming.
        queues: The topics of queues.
        connections: The connections to other instances.
        decoder: Decodes the records of service-decisions.
        refused: Record that Kafka has refused -> the failure. A refused delivery fails. A refused dead letter is
            written without its value.
    """

    topics: Topics
    share: Share
    records: Records
    queues: QueueTopics
    connections: Connections
    decoder: RecordDecoder[DecisionBatch]
    refused: dict[Written, Failure] = field(default_factory=dict)


def decision_batch(message: Message) -> DecisionBatch:
    """Decodes a record of service-decisions; raises InvalidRecordError."""
    return service_decisions.decode_decisions(message.value()).batch(message.offset() or 0)


class Transaction:
    """The decisions that one transaction carries out.

    Attributes:
        written: The records that were written to queues and as dead letters.
        delivered: Queue -> number of messages.
        services: Service -> number of messages that were delivered to the service; 0 if all its deliveries have failed.
        dropped: Number of Service Broker's message -> messages from other instances that were dropped.
        dead_letters: Service, empty if the record names none -> number of dead letters.
        clean_ups: Partition -> offset of the last CLEAN_UP's record, and the CLEAN_UP.
        lost: Partition -> why the partition has to stop.
        touched: The partitions of which records were carried out or passed over.
    """

    def __init__(self, context: Context, producer: TransactionalProducer, limit: int) -> None:
        """Prepares an empty transaction.

        Args:
            context: The objects that all transactions use.
            producer: The producer, with an open transaction.
            limit: The most records to write to queues and dead letters.
        """
        self._context = context
        self._topics = context.topics
        self._producer = producer
        self._limit = limit
        self._bytes = 0
        context.queues.begin()
        self._end_s = time.monotonic() + _MAX_S
        self._steps = 0
        self._taken: list[Message] = []
        self._is_unfinished = False
        self.written: list[Written] = []
        self.delivered: Counter[str] = Counter()
        self.services: Counter[str] = Counter()
        self.dead_letters: Counter[str] = Counter()
        self.dropped: Counter[int | None] = Counter()
        self.clean_ups: dict[int, tuple[int, decisions.CleanUp]] = {}
        self.lost: dict[int, str] = {}
        self.touched: set[int] = set()

    def fill(self, is_asked_to_stop: Callable[[], bool]) -> None:
        """Carries out waiting records, up to the limits of a transaction.

        Raises:
            RecordsUnavailableError: Kafka does not answer in time.
            TopicsUnknownError: Kafka does not answer in time.
            UserError: Kafka does not grant a right.
            KafkaException: A record cannot be written.
        """
        waiting, partitions = self._context.share.waiting, self._context.share.partitions
        while waiting and not self._is_unfinished and not self._is_full() and not is_asked_to_stop():
            message = waiting.popleft()
            self._taken.append(message)
            number = message.partition() or 0
            if number not in self.lost:
                self._carry_out_record(partitions[number], message)

    def finish(self) -> None:
        """Writes arrivals, reports and marks."""
        produce, topics = self._producer.produce, self._topics
        for queue, count in self.delivered.items():
            produce(topics.arrivals, msgspec.json.encode(MessageArrived(queue, count)), queue.encode())
        for number in self.touched:
            carrying = self._context.share.partitions[number].carrying
            for report in carrying.reports:
                for record in service_decisions.encoded_reports(number, report):
                    produce(topics.service_reports, record, report.sender[0].encode())
            for direction, refusal in carrying.changed_refusals().items():
                value = None if refusal is None else msgspec.json.encode(service_decisions.refusal_record(refusal))
                produce(topics.service_marks, value, service_decisions.refusal_key(*direction), (), number)
            mark = service_decisions.mark_of(carrying.position, len(carrying.refusals))
            produce(topics.service_marks, msgspec.json.encode(mark), service_decisions.MARK, (), number)

    def committed(self) -> None:
        """Puts back the last record if it has decisions that were not carried out."""
        if self._is_unfinished:
            self._context.share.waiting.appendleft(self._taken[-1])

    def aborted(self) -> None:
        """Puts back all records, to be carried out again."""
        self._context.share.waiting.extendleft(reversed(self._taken))

    def _is_full(self) -> bool:
        written = len(self.written)
        if written >= self._limit or self._bytes >= MAX_BYTES:
            return True
        # Not at each step, because a look at the clock takes a while.
        self._steps += 1
        return self._steps % _CLOCK_EVERY == 0 and time.monotonic() >= self._end_s

    def _carry_out_record(self, partition: Partition, message: Message) -> None:
        carrying, offset = partition.carrying, message.offset() or 0
        self.touched.add(partition.number)
        record = self._context.decoder.decode(message)
        if record is None:
            source = self._topics.service_decisions, partition.number, offset
            reason = "the record is not a valid record of decisions"
            self._bury((partition.number, offset, _WHOLE), source, message, reason, None)
            carrying.skip(offset)
            return
        self._context.queues.look({each.queue for each in record.decisions if isinstance(each, decisions.Deliver)})
        position = carrying.position
        try:
            for decision in carrying.take(record):
                self._carry_out(partition, decision, record, position.done - 1)
                if self._is_full():
                    self._is_unfinished = True
                    return
        except LostDecisionsError as error:
            self.lost[partition.number] = str(error)

    def _carry_out(self, partition: Partition, decision: decisions.Decision, record: DecisionBatch, index: int) -> None:
        if isinstance(decision, decisions.Deliver):
            self._deliver(partition, decision, record, index)
        elif isinstance(decision, decisions.DeadLetter):
            self._bury_source(partition, decision, record, index)
        elif isinstance(decision, decisions.CleanUp):
            self.clean_ups[partition.number] = record.offset, decision
        elif isinstance(decision, decisions.Drop):
            self.dropped[decision.number] += 1
        elif isinstance(decision, decisions.NeedRoute | decisions.Answered):
            news = service_decisions.news_of(decision)
            self._producer.produce(self._topics.service_reports, msgspec.json.encode(news), decision.service.encode())
        elif isinstance(decision, decisions.AskRole):
            self._context.connections.roles.ask(decision)
        elif isinstance(decision, decisions.Forward):
            self._forward(partition, decision, record, index)
        else:
            self._transmit(partition, decision, record, index)

    def _deliver(self, partition: Partition, delivery: decisions.Deliver, record: DecisionBatch, index: int) -> None:
        number, queue = partition.number, delivery.queue
        identity = number, record.offset, index
        self.services[delivery.service] += 0
        message: Message | None = None
        # After a refusal the topic was looked at again: its problem, such as a topic that was deleted, is the reason.
        problem = self._context.queues.problem(queue)
        failure = None if problem is None else Failure(is_lasting=False, reason=problem)
        failure = failure or self._context.refused.get((identity, True))
        if delivery.offset is not None and (failure is None or failure.is_lasting):
            message = self._read(delivery.source, number, delivery.offset, record, index)
            if message is None:
                failure = Failure(is_lasting=True, reason="the record of the message is gone")
            elif message.key() != delivery.conversation_id.encode():
                failure = Failure(is_lasting=True, reason="the record of the message has another key")
        if failure is None:
            try:
                key, value, headers = delivered(delivery, message)
            except InvalidRecordError as error:
                failure = Failure(is_lasting=True, reason=f"the record of the message is invalid: {error}")
            else:
                self._producer.produce(queue, value, key, headers)
                self.delivered[queue] += 1
                self.services[delivery.service] += 1
                self.written.append((identity, True))
                self._bytes += len(value or b"")
                return
        if failure.is_lasting and delivery.offset is not None:
            source = self._topic_of(delivery.source), number, delivery.offset
            self._bury(identity, source, message, failure.reason, failure.number, delivery.service)
        partition.carrying.fail(delivery, failure)

    def _transmit(self, partition: Partition, decision: decisions.Transmit, record: DecisionBatch, index: int) -> None:
        """Hands a message to the connection to another instance. The router decides again about a lost message."""
        connections, message = self._context.connections, None
        # While a destination is away, most work would be to read messages that cannot be sent.
        if not connections.takes(decision.address):
            return
        if decision.offset is not None:
            message = self._read(Source.MESSAGES, partition.number, decision.offset, record, index)
            if message is None:
                self._refuse(decision, "the record of the message is gone")
                return
        # The decision may have waited for a transport. The router notices by itself that the message's time is over.
        timely = in_time(decision, connections.clock.now_ms())
        if timely is None:
            return
        try:
            row = transmitted(timely, message)
        except InvalidRecordError as error:
            self._refuse(decision, f"the record of the message is invalid: {error}")
            return
        connections.send(decision.address, row)
        self._bytes += len(row[1] or b"")

    def _refuse(self, decision: decisions.Transmit, reason: str) -> None:
        if decision.sequence is not None:
            message = decision.conversation_id, decision.is_initiator, decision.sequence
            self._context.connections.report(service_decisions.NotSentReport(*message, reason))

    def _forward(self, partition: Partition, decision: decisions.Forward, record: DecisionBatch, index: int) -> None:
        """Hands a message of another instance to the connection to the next instance."""
        message = self._read(Source.INCOMING, partition.number, decision.offset, record, index)
        if message is not None:
            number = self._context.connections.forward(decision, message)
            if number is not None:
                self.dropped[number] += 1
            self._bytes += len(message.value() or b"")

    def _bury_source(
        self, partition: Partition, decision: decisions.DeadLetter, record: DecisionBatch, index: int
    ) -> None:
        message = self._read(decision.source, partition.number, decision.offset, record, index)
        source = self._topic_of(decision.source), partition.number, decision.offset
        self._bury((partition.number, record.offset, index), source, message, decision.reason, decision.number)

    def _bury(  # noqa: PLR0913, PLR0917  (the fields of a dead letter)
        self,
        identity: DecisionId,
        source: tuple[str, int, int],
        message: Message | None,
        reason: str,
        number: int | None,
        service: str = "",
    ) -> None:
        written = identity, False
        key, value, headers = dead_letter(source, message, reason, number, is_bare=written in self._context.refused)
        self._producer.produce(self._topics.service_dead_letters, value, key, headers)
        self.written.append(written)
        self.dead_letters[service or _to_service(headers)] += 1
        self._bytes += len(value or b"")

    def _read(self, source: Source, number: int, offset: int, record: DecisionBatch, index: int) -> Message | None:
        def upcoming() -> list[int]:
            found = {_offset_in(source, each) for each in record.decisions[index:]}
            return sorted(each for each in found if each is not None)

        return self._context.records.get(self._topic_of(source), number, offset, upcoming)

    def _topic_of(self, source: Source) -> str:
        return self._topics.service_messages if source is Source.MESSAGES else self._topics.service_incoming


def _to_service(headers: Headers) -> str:
    """Returns the service that the record of a dead letter is for; empty if the record has no valid envelope."""
    with suppress(InvalidRecordError):
        return decode_envelope(headers, MAX_INCOMING_BYTES).to_service
    return ""


def _offset_in(source: Source, decision: decisions.Decision) -> int | None:
    """Returns the offset of the record that a decision names in this topic; None if it names no record there."""
    if isinstance(decision, decisions.Deliver | decisions.DeadLetter):
        return decision.offset if decision.source is source else None
    if isinstance(decision, decisions.Transmit):
        return decision.offset if source is Source.MESSAGES else None
    return decision.offset if isinstance(decision, decisions.Forward) and source is Source.INCOMING else None
