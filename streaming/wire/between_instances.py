"""The records of service-incoming, which the transport of one instance writes into the Kafka cluster of another."""

from dataclasses import replace

from confluent_kafka import Message

from streaming.core.connections.forwarder import MAX_FORWARD_MS
from streaming.core.conversations.decisions import Forward, Transmit
from streaming.core.conversations.kinds import Kind
from streaming.core.conversations.questions import MISSING_ROUTE
from streaming.wire.delivered import OWN_HEADERS, Row
from streaming.wire.envelope import HEADER, MAX_INCOMING_BYTES, Envelope, decode_envelope, encode_envelope
from streaming.wire.headers import Headers, decoded_headers
from streaming.wire.record_decoders import InvalidRecordError
from streaming.wire.service_decisions import NotSentReport


def in_time(decision: Transmit, broker_ms: int | None) -> Transmit | None:
    """Returns the decision with the rest of the conversation's lifetime; None if the lifetime is over.

    Args:
        decision: The decision.
        broker_ms: The time by the brokers' clock; None: not known, so the lifetime of the decision stays.
    """
    if decision.ends_ms is None or broker_ms is None:
        return decision
    lifetime_ms = decision.ends_ms - broker_ms
    return replace(decision, lifetime_ms=lifetime_ms) if lifetime_ms > 0 else None


def transmitted(decision: Transmit, message: Message | None) -> Row:
    """Returns the record of a message of a conversation.

    Args:
        decision: The decision.
        message: The program's record; None: the router sends the message.

    Raises:
        InvalidRecordError: The program's record has no valid envelope.
    """
    theirs = [] if message is None else decoded_headers(message)
    code, text = decision.error_code, decision.error_text
    type_name = None if decision.body is None else MISSING_ROUTE
    if message is not None:
        envelope = decode_envelope(theirs)
        code, text, type_name = envelope.error_code, envelope.error_text, envelope.message_type_name
    is_first = decision.is_initiator and decision.sequence == 0
    sent = Envelope(
        type=decision.kind.value,
        conversation_id=decision.conversation_id,
        is_initiator=decision.is_initiator,
        from_service=decision.from_service,
        from_database=decision.from_database,
        from_broker_instance=decision.from_broker_instance,
        to_service=decision.to_service,
        to_broker_instance=decision.to_broker_instance,
        begin=is_first,
        message_type_name=type_name,
        lifetime_s=_seconds(decision.lifetime_ms) if is_first else None,
        time_to_live_ms=decision.lifetime_ms,
        error_code=code,
        error_text=text,
        message_sequence_number=decision.sequence,
        first_unacknowledged=decision.first_unacknowledged,
        receive_sequence_number=decision.receive_sequence,
        hops_remaining=decision.hops_remaining,
    )
    key = decision.conversation_id.encode()
    others = [header for header in theirs if header[0] not in OWN_HEADERS]
    value = message.value() if message is not None and decision.kind == Kind.MESSAGE else (decision.body or "").encode()
    return key, value, [(HEADER, encode_envelope(sent, MAX_INCOMING_BYTES)), *others]


def _seconds(duration_ms: int | None) -> int | None:
    """Returns a duration in seconds, rounded up."""
    return None if duration_ms is None else -(-duration_ms // 1000)


def not_sent(headers: Headers, reason: str) -> NotSentReport | None:
    """Returns the report that a record can never be sent; None if the record is not a message with a number."""
    try:
        envelope = decode_envelope(headers, MAX_INCOMING_BYTES)
    except InvalidRecordError:
        return None
    sequence = envelope.message_sequence_number
    if sequence is None:
        return None
    return NotSentReport(envelope.conversation_id, envelope.is_initiator, sequence, reason)


def forwarded(decision: Forward, message: Message, waited_ms: int) -> Row | None:
    """Returns the record of a message that is sent on to another instance; None if its time is over (11290).

    Args:
        decision: The decision.
        message: The record of service-incoming.
        waited_ms: The time since the record was written, by the clock of the broker that has stamped it.

    Raises:
        InvalidRecordError: The record has no valid envelope.
    """
    headers: Headers = decoded_headers(message)
    envelope = decode_envelope(headers, MAX_INCOMING_BYTES)
    time_to_live_ms = envelope.time_to_live_ms
    if waited_ms > MAX_FORWARD_MS or (time_to_live_ms is not None and waited_ms > time_to_live_ms):
        return None
    envelope.hops_remaining = decision.hops_remaining
    if time_to_live_ms is not None:
        envelope.time_to_live_ms = time_to_live_ms - waited_ms
        if envelope.lifetime_s is not None:
            envelope.lifetime_s = _seconds(envelope.time_to_live_ms) or 1
    others = [header for header in headers if header[0] != HEADER]
    return message.key(), message.value(), [(HEADER, encode_envelope(envelope, MAX_INCOMING_BYTES)), *others]
