"""The rows of the router's views: endpoints in service-conversations, held messages in service-transmissions."""

from msgspec import Struct

from streaming.wire.record_decoders import decoder_of

_NOT_ACKNOWLEDGED = "no acknowledgement from"


def no_acknowledgement(address: str, *, is_sent_again: bool) -> str:
    """Returns the reason why messages for another instance are still here.

    Args:
        address: The address of the other instance.
        is_sent_again: Whether the first message is sent again, so that the others are held.
    """
    return f"{_NOT_ACKNOWLEDGED} {address} yet{', so the first message is sent again' if is_sent_again else ''}"


class EndpointRow(Struct):
    """An endpoint of a conversation; docs/contract.md explains the fields. Times are ISO 8601, so texts order them."""

    conversation_id: str
    is_initiator: bool
    state: str
    service: str
    database: str
    far_service: str
    far_database: str | None
    far_broker_instance: str | None
    conversation_group_id: str
    send_sequence: int
    receive_sequence: int
    lifetime_end: str | None
    dialog_timer: str | None
    update_time: str
    last_statement: str | None = None

    @property
    def idle_since(self) -> str:
        """Returns the time since which no program is known to have made a statement in the conversation."""
        return self.last_statement or self.update_time


class TransmissionRow(Struct):
    """The messages that one side of a conversation has sent and the router holds."""

    conversation_id: str
    is_initiator: bool
    from_service: str
    from_database: str | None
    to_service: str
    to_broker_instance: str | None
    messages: int
    held_since: str | None
    number: int | None
    reason: str
    next_try: str | None
    update_time: str

    @property
    def is_unacknowledged(self) -> bool:
        """Returns whether another instance may be away, because it has not acknowledged the first message."""
        return self.held_since is None or self.reason.startswith(_NOT_ACKNOWLEDGED)


decode_endpoint = decoder_of(EndpointRow)
decode_transmission = decoder_of(TransmissionRow)
