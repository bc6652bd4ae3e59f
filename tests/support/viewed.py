"""Rows of the router's views: an endpoint of service Orders, and a message that it sends and the router holds."""

from typing import Any

from streaming.wire.service_views import EndpointRow, TransmissionRow

TIME = "2026-01-31T12:00:00.000Z"


def endpoint(**fields: Any) -> EndpointRow:
    """Returns the initiator of conversation c, unless the fields say something else."""
    values: dict[str, Any] = {
        "conversation_id": "c",
        "is_initiator": True,
        "state": "CO",
        "service": "Orders",
        "database": "shop",
        "far_service": "Stock",
        "far_database": None,
        "far_broker_instance": None,
        "conversation_group_id": "c",
        "send_sequence": 1,
        "receive_sequence": 0,
        "lifetime_end": None,
        "dialog_timer": None,
        "update_time": TIME,
        "last_statement": TIME,
    }
    return EndpointRow(**values | fields)


def transmission(**fields: Any) -> TransmissionRow:
    """Returns the held messages of the initiator of conversation c, unless the fields say something else."""
    values: dict[str, Any] = {
        "conversation_id": "c",
        "is_initiator": True,
        "from_service": "Orders",
        "from_database": "shop",
        "to_service": "Stock",
        "to_broker_instance": None,
        "messages": 1,
        "held_since": TIME,
        "number": 9796,
        "reason": "the service is not here",
        "next_try": None,
        "update_time": TIME,
    }
    return TransmissionRow(**values | fields)
