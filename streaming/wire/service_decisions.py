"""The records between the router and the transport: service-decisions, service-marks and service-reports.

The fields `number`, `first` and `ends` make each decision take effect once, although Spark's sink writes at least once
(core/conversations/marks.py). Only the programs of one instance read these records.
"""

from dataclasses import replace
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from streaming.core.conversations.decision_batches import DecisionBatch, Failure, Position, Refusal, Report
from streaming.core.conversations.decisions import Answered, Deliver, NeedRoute
from streaming.core.conversations.kinds import Kind
from streaming.core.conversations.marks import Marks
from streaming.wire.decision_fields import DecisionFields, DeliverFields, Natural, decision_of, fields_of
from streaming.wire.envelope import ConversationId
from streaming.wire.record_decoders import Int64, InvalidRecordError, decode_json, decoder_of
from streaming.wire.service_commands import Name, ServiceName

# The router adds 1 to a reported round, and the next round must be a Natural, too.
Round = Annotated[int, Meta(ge=0, le=2**62)]


class DecisionRecord(Struct):
    """A record of service-decisions.

    Attributes:
        generation: The generation of the router's checkpoint.
        number: The record's number, consecutive in the partition and from 1 in each generation.
        first: The number of its batch's first record in the partition.
        ends: The offsets of service-messages and service-incoming up to which the router had read, in this partition.
        decisions: The decisions, in order.
    """

    generation: Natural
    number: Natural
    first: Natural
    ends: tuple[Natural, Natural]
    decisions: list[DecisionFields]

    def batch(self, offset: int) -> DecisionBatch:
        """Returns the core's form of the record with this offset."""
        decisions = [*map(decision_of, self.decisions)]
        return DecisionBatch(offset, self.generation, self.number, self.first, self.ends, decisions)


class MarkRecord(Struct):
    """The record of a partition in service-marks: how far the transport has carried out the partition's decisions.

    Its key is MARK. The refusals are separate records, because all refusals of a partition may not fit into one record.

    Attributes:
        generation: The generation of the last decision record.
        number: The `number` of the last decision record.
        first: The `first` of the last decision record.
        ends: The `ends` of the last decision record.
        offset: The offset in service-decisions of the next decision record.
        done: The number of decisions of the next decision record that have been carried out already.
        refusals: The number of refusals in force.
        held: The lowest offset in service-messages of returned messages about which the router may not know; None:
            there are none.
    """

    generation: Natural
    number: Natural
    first: Natural
    ends: tuple[Natural, Natural]
    offset: Natural
    done: Natural
    refusals: Natural
    held: Natural | None = None

    def position(self) -> Position:
        """Returns the record in the core's form."""
        marks = Marks(self.generation, self.number, self.first, self.ends)
        return Position(marks, self.offset, self.done, self.held)


class RefusalRecord(Struct, omit_defaults=True):
    """A refusal in service-marks; a tombstone ends it. `refusal_key` returns its key.

    Attributes:
        round: The highest round that is refused.
        is_lasting: As in the report.
        reason: As in the report.
        number: As in the report.
        begun: As in the report.
    """

    round: Natural
    is_lasting: bool
    reason: str
    number: Int64 | None = None
    begun: Natural | None = None

    def refusal(self) -> Refusal:
        """Returns the record in the core's form."""
        return Refusal(self.begun, self.round, Failure(self.is_lasting, self.reason, self.number))


class RefusedReport(Struct, tag="REFUSED", tag_field="type", omit_defaults=True):
    """A report of the transport: deliveries of one direction that were not made. A round may have several reports.

    Attributes:
        partition: The partition of the conversation.
        conversation_id: The conversation.
        is_initiator: Whether the initiator is the sender.
        round: The round that is refused.
        is_lasting: Whether the message itself cannot be delivered, so that the conversation has failed. Otherwise
            delivery is tried again later.
        reason: The reason, in words.
        refused: The deliveries, in order. A message that is in service-dead-letters is not among them.
        number: The number of Service Broker's message for the reason.
        begun: The offset of the record that began the conversation; None: the delivery was an error about an unknown
            conversation.
    """

    partition: Natural
    conversation_id: str
    is_initiator: bool
    round: Round
    is_lasting: bool
    reason: str
    refused: list[DeliverFields]
    number: Natural | None = None
    begun: Natural | None = None

    def deliveries(self) -> list[Deliver]:
        """Returns the deliveries in the core's form."""
        return [each for each in map(decision_of, self.refused) if isinstance(each, Deliver)]


class RetryReport(Struct, tag="RETRY", tag_field="type"):
    """A request of an administrator: the router decides now, not later, about the held messages of a conversation.

    Attributes:
        conversation_id: The conversation.
    """

    conversation_id: ConversationId


class NotSentReport(Struct, tag="NOT_SENT", tag_field="type"):
    """A message to another instance that can never be sent there.

    Attributes:
        conversation_id: The conversation.
        is_initiator: Whether the initiator has sent the message.
        message_sequence_number: The number of the message.
        reason: The reason for which the message cannot be sent.
    """

    conversation_id: ConversationId
    is_initiator: bool
    message_sequence_number: Natural
    reason: str


class ConnectedReport(Struct, tag="CONNECTED", tag_field="type"):
    """A report of a transport: another instance has become reachable for it, or unreachable.

    Attributes:
        address: The instance's address, as routes name it.
        is_connected: Whether the instance can be reached. If so, messages without an acknowledgement are sent again.
    """

    address: str
    is_connected: bool


class NeedRouteReport(Struct, tag="NEED_ROUTE", tag_field="type", omit_defaults=True):
    """A part of the router needs a route. One shard then asks the configuration service for the route.

    Attributes:
        database: The database whose routing table has no route.
        service: The service to which the route is to lead.
        broker_instance: The broker instance that the first conversation names; None: it names none.
    """

    database: Name
    service: ServiceName
    broker_instance: Name | None = None


class AnsweredReport(Struct, tag="ANSWERED", tag_field="type"):
    """The configuration service has ended the conversation about a route.

    Attributes:
        database: As in NEED_ROUTE.
        service: As in NEED_ROUTE.
        is_error: Whether the conversation ended with an error, or without an answer in time.
    """

    database: Name
    service: ServiceName
    is_error: bool


class RoleReport(Struct, tag="ROLE", tag_field="type", omit_defaults=True):
    """The answer of another instance: the role of a database.

    Attributes:
        broker_instance: The broker instance of the database.
        address: The instance's address, as routes name it.
        role: The role; None: the instance does not answer, or has no such database whose broker is enabled.
        epoch: The number of the role.
    """

    broker_instance: Name
    address: str
    role: Literal["PRINCIPAL", "MIRROR"] | None = None
    epoch: Natural = 0


# Reports for every part of the router.
News = ConnectedReport | NeedRouteReport | AnsweredReport | RoleReport
ServiceReport = RefusedReport | RetryReport | NotSentReport | News

encoder = msgspec.json.Encoder()
decode_decisions = decoder_of(DecisionRecord)
decode_mark = decoder_of(MarkRecord)
decode_refusal = decoder_of(RefusalRecord)
_report_decoder = msgspec.json.Decoder(ServiceReport)

# Kafka takes 1 MiB by default, with the key and some bytes of its own.
MAX_REPORT_BYTES = 900_000

# The key of a MarkRecord.
MARK = b"mark"
# The beginnings of the keys of refusals, by the sender's side.
_REFUSAL_KEYS = {True: b"refusal/initiator/", False: b"refusal/target/"}


def decode_report(value: bytes | None) -> ServiceReport:
    """Decodes a record of service-reports; raises InvalidRecordError."""
    report: ServiceReport = decode_json(_report_decoder, value)
    if isinstance(report, RefusedReport):
        for each in report.deliveries():
            if each.kind is Kind.MESSAGE and each.offset is None and each.body is None:
                # It could become a dead letter, which needs a record.
                raise InvalidRecordError("a MESSAGE that is returned needs the field `offset` or `body`")
    return report


def refusal_key(conversation_id: str, is_initiator: bool) -> bytes:
    """Returns the key of a refusal in service-marks."""
    return _REFUSAL_KEYS[is_initiator] + conversation_id.encode()


def refused_direction(key: bytes) -> tuple[str, bool] | None:
    """Returns the conversation and the sender's side of a refusal's key; None for another key of service-marks."""
    for is_initiator, beginning in _REFUSAL_KEYS.items():
        if key.startswith(beginning):
            return key.removeprefix(beginning).decode(errors="replace"), is_initiator
    return None


def mark_of(position: Position, refusals: int) -> MarkRecord:
    """Returns the record of a position, with the number of refusals in force."""
    marks = position.marks
    done = position.offset, position.done
    return MarkRecord(marks.generation, marks.number, marks.first, marks.ends, *done, refusals, position.keep_from)


def refusal_record(refusal: Refusal) -> RefusalRecord:
    """Returns the record of a refusal."""
    failure = refusal.failure
    return RefusalRecord(refusal.round, failure.is_lasting, failure.reason, failure.number, refusal.begun)


def news_of(decision: NeedRoute | Answered) -> NeedRouteReport | AnsweredReport:
    """Returns the report that brings a decision to all parts of the router."""
    if isinstance(decision, NeedRoute):
        return NeedRouteReport(decision.database, decision.service, decision.broker_instance)
    return AnsweredReport(decision.database, decision.service, decision.is_error)


def report_of(partition: int, report: Report) -> RefusedReport:
    """Returns the record of a report."""
    why, returned = report.failure, [*map(fields_of, report.returned)]
    return RefusedReport(
        partition, *report.sender, report.round, why.is_lasting, why.reason, returned, why.number, report.begun
    )


def encoded_reports(partition: int, report: Report) -> list[bytes]:
    """Returns a report as one record, or as several of the same round if Kafka would not accept a single record."""
    record, half = encoder.encode(report_of(partition, report)), len(report.returned) // 2
    if len(record) <= MAX_REPORT_BYTES or not half:
        return [record]
    parts = report.returned[:half], report.returned[half:]
    return [each for returned in parts for each in encoded_reports(partition, replace(report, returned=returned))]
