"""The common part of the stories of services and of instances: the messages of conversations."""

import time
from collections.abc import Collection, Iterable

from confluent_kafka import Message
from rich.console import Console

from streaming.cli.demo.service_records import NO_DIFFERENCES, Delivery, ServiceRecords
from streaming.cli.demo.timeline import TOPICS, Timeline
from streaming.wire.delivered import kind_of
from streaming.wire.envelope import Envelope, decode_envelope
from streaming.wire.headers import decoded_headers
from streaming.wire.service_views import TransmissionRow, decode_transmission


class ConversationStory(Timeline):
    """Prints events of conversations that the shop has begun.

    Attributes:
        queues: The queues of services.
        timers: The number of timers that become due.
        said: Conversation -> the messages that its initiator has sent, or will send when its timer is due.
        records: The records that were seen.
        held: The number of messages of `_held_rows`.
    """

    queues: Collection[str]
    timers = 0

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.said: dict[str, list[bytes]] = {}
        self.records = ServiceRecords()
        self.held = 0
        self._transmissions: dict[bytes, TransmissionRow] = {}

    def _saw(self, message: Message) -> None:
        topic, at_s = message.topic() or "", message.timestamp()[1] / 1000
        if topic in self.queues:
            texts = {name: (value or b"").decode(errors="replace") for name, value in decoded_headers(message)}
            kind, body = kind_of(texts.get("message_type_name")), message.value() or b""
            self._saw_delivery(Delivery(topic, texts.get("conversation_id", ""), kind, body, at_s, time.time()))
        elif topic == TOPICS.service_messages:
            self._saw_statement(decode_envelope(decoded_headers(message)), message.value() or b"", at_s)
        elif topic == TOPICS.service_transmissions:
            self._saw_transmission(message)
        else:
            super()._saw(message)

    def _saw_delivery(self, delivery: Delivery) -> None:
        self.records.deliveries.append(delivery)

    def _saw_statement(self, envelope: Envelope, body: bytes, at_s: float) -> None:
        if envelope.type == "MESSAGE":
            self.records.note_sent(envelope.conversation_id, envelope.is_initiator, body, at_s)

    def _saw_transmission(self, message: Message) -> None:
        key, value = message.key() or b"", message.value()
        if value is None:
            self._transmissions.pop(key, None)
        else:
            self._transmissions[key] = decode_transmission(value)
        self.held = sum(row.messages for row in self._held_rows())

    def _held_rows(self) -> Iterable[TransmissionRow]:
        """Returns the rows of messages whose delivery the plot waits for."""
        raise NotImplementedError

    def is_complete(self) -> bool:
        """Returns whether all messages, all answers and the end of each conversation were delivered."""
        expected = self.timers + sum(2 * len(bodies) + 1 for bodies in self.said.values())
        return len(self.records.deliveries) >= expected

    def _account(self, *facts: tuple[str, str]) -> bool:
        """Prints the summary; returns whether every message was delivered once and in order, and was answered."""
        sent = sum(map(len, self.said.values()))
        delivered, answered = self.records.delivered(), self.records.answered()
        found = self.records.differences(self.said)
        self._print_summary(
            ("sent, delivered, answered", f"{sent}, {delivered}, {answered}"),
            ("lost, twice, out of order", f"{found.lost}, {found.twice}, {found.out_of_order}"),
            *facts,
        )
        return sent == delivered == answered > 0 and found == NO_DIFFERENCES
