"""The decisions of the router, as fields of the records of service-decisions and service-reports.

core/conversations/decisions.py explains the fields.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from streaming.core.conversations.decisions import (
    Answered,
    AskRole,
    CleanUp,
    DeadLetter,
    Decision,
    Deliver,
    Drop,
    Forward,
    Kind,
    NeedRoute,
    Source,
    Transmit,
)
from streaming.wire.decoding import Int64

Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
# No report may make a decision that is too large for Kafka.
ErrorText = Annotated[str, Meta(max_length=4000)]
Body = Annotated[str, Meta(max_length=4000)]

_KINDS = tuple(kind.name for kind in Kind)
_SOURCES = tuple(source.name for source in Source)


class DeliverFields(Struct, tag="DELIVER", tag_field="decision", omit_defaults=True):
    """A message to be put into a queue; core/conversations/decisions.py explains the fields.

    Without `offset` the router sends the message; without `sequence` it has no number; without `begun` it is an error
    about an unknown conversation.
    """

    conversation_id: str
    is_initiator: bool
    queue: str
    service: str
    from_service: str
    conversation_group_id: str
    round: Natural
    kind: Literal["MESSAGE", "END", "ERROR", "TIMER"] = "MESSAGE"
    offset: Natural | None = None
    sequence: Natural | None = None
    error_code: Int64 | None = None
    error_text: ErrorText | None = None
    database: str = ""
    begun: Natural | None = None
    source: Literal["MESSAGES", "INCOMING"] = "MESSAGES"
    body: Body | None = None

    def decision(self) -> Deliver:
        """Returns the core's form."""
        return Deliver(
            kind=Kind[self.kind],
            conversation_id=self.conversation_id,
            is_initiator=self.is_initiator,
            sequence=-1 if self.sequence is None else self.sequence,
            round=self.round,
            offset=-1 if self.offset is None else self.offset,
            queue=self.queue,
            service=self.service,
            from_service=self.from_service,
            group_id=self.conversation_group_id,
            error_code=self.error_code,
            error_text=self.error_text,
            database=self.database,
            begun=-1 if self.begun is None else self.begun,
            source=Source[self.source],
            body=self.body,
        )


class DeadLetterFields(Struct, tag="DEAD_LETTER", tag_field="decision", omit_defaults=True):
    """A record to be put into service-dead-letters."""

    source: Literal["MESSAGES", "INCOMING"]
    offset: Natural
    reason: str
    number: Int64 | None = None

    def decision(self) -> DeadLetter:
        """Returns the core's form."""
        return DeadLetter(Source[self.source], self.offset, self.number, self.reason)


class CleanUpFields(Struct, tag="CLEAN_UP", tag_field="decision"):
    """Offsets of service-messages and service-incoming, and an instant, before which records may be deleted."""

    messages: Natural
    incoming: Natural
    decided_ms: Natural = 0

    def decision(self) -> CleanUp:
        """Returns the core's form."""
        return CleanUp(self.messages, self.incoming, self.decided_ms)


class TransmitFields(Struct, tag="TRANSMIT", tag_field="decision", omit_defaults=True):
    """A message to be sent to another instance. Without `offset` the router sends it."""

    kind: Literal["MESSAGE", "END", "ERROR", "ACK"]
    address: str
    conversation_id: str
    is_initiator: bool
    from_service: str
    from_database: str
    to_service: str
    hops_remaining: Natural
    sequence: Natural | None = None
    offset: Natural | None = None
    from_broker_instance: str | None = None
    to_broker_instance: str | None = None
    first_unacknowledged: Natural = 0
    receive_sequence: Natural = 0
    lifetime_ms: Natural | None = None
    error_code: Int64 | None = None
    error_text: ErrorText | None = None
    body: Body | None = None
    ends_ms: Natural | None = None

    def decision(self) -> Transmit:
        """Returns the core's form."""
        return Transmit(
            kind=Kind[self.kind],
            address=self.address,
            conversation_id=self.conversation_id,
            is_initiator=self.is_initiator,
            sequence=-1 if self.sequence is None else self.sequence,
            offset=-1 if self.offset is None else self.offset,
            from_service=self.from_service,
            from_database=self.from_database,
            from_broker_instance=self.from_broker_instance,
            to_service=self.to_service,
            to_broker_instance=self.to_broker_instance,
            first_unacknowledged=self.first_unacknowledged,
            receive_sequence=self.receive_sequence,
            hops_remaining=self.hops_remaining,
            lifetime_ms=self.lifetime_ms,
            error_code=self.error_code,
            error_text=self.error_text,
            body=self.body,
            ends_ms=self.ends_ms,
        )


class ForwardFields(Struct, tag="FORWARD", tag_field="decision", omit_defaults=True):
    """A record of service-incoming to be sent on."""

    offset: Natural
    address: str
    hops_remaining: Natural

    def decision(self) -> Forward:
        """Returns the core's form."""
        return Forward(self.offset, self.address, self.hops_remaining)


class DropFields(Struct, tag="DROP", tag_field="decision", omit_defaults=True):
    """A record of service-incoming with which nothing is done."""

    offset: Natural
    conversation_id: str
    number: Int64 | None = None

    def decision(self) -> Drop:
        """Returns the core's form."""
        return Drop(self.offset, self.number, self.conversation_id)


class NeedRouteFields(Struct, tag="NEED_ROUTE", tag_field="decision", omit_defaults=True):
    """A route that the configuration service is to be asked for."""

    database: str
    service: str
    broker_instance: str | None = None

    def decision(self) -> NeedRoute:
        """Returns the core's form."""
        return NeedRoute(self.database, self.service, self.broker_instance)


class AnsweredFields(Struct, tag="ANSWERED", tag_field="decision"):
    """The end of a question to the configuration service."""

    database: str
    service: str
    is_error: bool

    def decision(self) -> Answered:
        """Returns the core's form."""
        return Answered(self.database, self.service, self.is_error)


class AskRoleFields(Struct, tag="ASK_ROLE", tag_field="decision"):
    """The two addresses of a mirrored route that are to be asked for their roles."""

    broker_instance: str
    address: str
    mirror_address: str

    def decision(self) -> AskRole:
        """Returns the core's form."""
        return AskRole(self.broker_instance, self.address, self.mirror_address)


DecisionFields = (
    DeliverFields
    | DeadLetterFields
    | CleanUpFields
    | TransmitFields
    | ForwardFields
    | DropFields
    | NeedRouteFields
    | AnsweredFields
    | AskRoleFields
)


def fields_of(decision: Decision) -> dict[str, Any]:
    """Returns a decision as the fields of its record."""
    if isinstance(decision, Deliver):
        return _fields_of_deliver(decision)
    if isinstance(decision, DeadLetter):
        fields = {
            "decision": "DEAD_LETTER",
            "source": _SOURCES[decision.source],
            "offset": decision.offset,
            "reason": decision.reason,
        }
        return fields if decision.number is None else fields | {"number": decision.number}
    if isinstance(decision, CleanUp):
        return {
            "decision": "CLEAN_UP",
            "messages": decision.messages,
            "incoming": decision.incoming,
            "decided_ms": decision.decided_ms,
        }
    if isinstance(decision, NeedRoute | Answered | AskRole):
        return _fields_of_news(decision)
    return _fields_between_instances(decision)


def _fields_of_deliver(decision: Deliver) -> dict[str, Any]:
    fields = {
        "decision": "DELIVER",
        "conversation_id": decision.conversation_id,
        "is_initiator": decision.is_initiator,
        "queue": decision.queue,
        "service": decision.service,
        "from_service": decision.from_service,
        "conversation_group_id": decision.group_id,
        "round": decision.round,
    }
    if decision.kind:
        fields["kind"] = _KINDS[decision.kind]
    if decision.offset >= 0:
        fields["offset"] = decision.offset
    if decision.sequence >= 0:
        fields["sequence"] = decision.sequence
    if decision.error_code is not None:
        fields["error_code"] = decision.error_code
    if decision.error_text is not None:
        fields["error_text"] = decision.error_text
    if decision.database:
        fields["database"] = decision.database
    if decision.begun >= 0:
        fields["begun"] = decision.begun
    if decision.source:
        fields["source"] = _SOURCES[decision.source]
    if decision.body is not None:
        fields["body"] = decision.body
    return fields


def _fields_of_news(decision: NeedRoute | Answered | AskRole) -> dict[str, Any]:
    if isinstance(decision, NeedRoute):
        fields = {"decision": "NEED_ROUTE", "database": decision.database, "service": decision.service}
        instance = decision.broker_instance
        return fields if instance is None else fields | {"broker_instance": instance}
    if isinstance(decision, Answered):
        return {
            "decision": "ANSWERED",
            "database": decision.database,
            "service": decision.service,
            "is_error": decision.is_error,
        }
    return {
        "decision": "ASK_ROLE",
        "broker_instance": decision.broker_instance,
        "address": decision.address,
        "mirror_address": decision.mirror_address,
    }


def _fields_between_instances(decision: Transmit | Forward | Drop) -> dict[str, Any]:
    if isinstance(decision, Transmit):
        fields = {
            "decision": "TRANSMIT",
            "kind": _KINDS[decision.kind],
            "address": decision.address,
            "conversation_id": decision.conversation_id,
            "is_initiator": decision.is_initiator,
            "from_service": decision.from_service,
            "from_database": decision.from_database,
            "to_service": decision.to_service,
            "hops_remaining": decision.hops_remaining,
            "first_unacknowledged": decision.first_unacknowledged,
            "receive_sequence": decision.receive_sequence,
            "sequence": decision.sequence if decision.sequence >= 0 else None,
            "offset": decision.offset if decision.offset >= 0 else None,
            "from_broker_instance": decision.from_broker_instance,
            "to_broker_instance": decision.to_broker_instance,
            "lifetime_ms": decision.lifetime_ms,
            "error_code": decision.error_code,
            "error_text": decision.error_text,
            "body": decision.body,
            "ends_ms": decision.ends_ms,
        }
    elif isinstance(decision, Forward):
        fields = {
            "decision": "FORWARD",
            "offset": decision.offset,
            "address": decision.address,
            "hops_remaining": decision.hops_remaining,
        }
    else:
        fields = {
            "decision": "DROP",
            "offset": decision.offset,
            "conversation_id": decision.conversation_id,
            "number": decision.number,
        }
    return {name: value for name, value in fields.items() if value is not None}
