"""Asks the router to decide now about the held messages of a conversation, and waits for the result."""

import time
from collections.abc import Mapping

import msgspec

from streaming.cli.command_sender import send_commands
from streaming.cli.routing.router_waits import Patience
from streaming.kafka.clients import Cluster
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system import hints
from streaming.wire.record_decoders import InvalidRecordError
from streaming.wire.service_decisions import RetryReport
from streaming.wire.service_views import TransmissionRow, decode_transmission
from streaming.wire.topics import Topics

_POLL_S = 0.1


def retry(
    kafka: Cluster, topics: Topics, conversation_id: str, held: Mapping[str, TransmissionRow], timeout_s: float
) -> dict[str, TransmissionRow | None] | None:
    """Asks the router to decide about held messages now, and waits for the result.

    Args:
        kafka: The cluster.
        topics: The topics.
        conversation_id: The conversation.
        held: Key of an endpoint -> the row of its held messages.
        timeout_s: The longest wait.

    Returns:
        Key of an endpoint -> the row of its messages that are still held, or None if it holds no message. Returns None
        in place of the result if the router has not shown a result in time.

    Raises:
        UserError: Kafka cannot be reached or refuses.
    """
    found: dict[str, TransmissionRow | None] = {}
    with TopicFollower(kafka, [topics.service_transmissions], Start.END) as follower:
        record = msgspec.json.encode(RetryReport(conversation_id))
        check = hints.command("conversation", "show", conversation_id)
        send_commands(kafka, topics.service_reports, [(conversation_id, record)], check)
        deadline_s = time.monotonic() + timeout_s
        patience = Patience("the router to decide again")
        while time.monotonic() < deadline_s:
            message = follower.poll(_POLL_S)
            patience.look()
            key = "" if message is None else (message.key() or b"").decode(errors="replace")
            if message is None or key not in held:
                continue
            try:
                found[key] = None if message.value() is None else decode_transmission(message.value())
            except InvalidRecordError:
                continue
            if found.keys() == held.keys():
                return found
    return None
