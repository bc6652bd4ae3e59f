"""The output of the demo of services: its timeline and its summary."""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from confluent_kafka import Message
from msgspec import Struct
from rich.console import Console

from streaming.cli.demo.service_plan import INVOICES, NORTH, ORDERS, REMINDER, ROUTE, SHOP, SOUTH, STOCKS
from streaming.cli.demo.service_records import NO_DIFFERENCES, Delivery, ServiceRecords
from streaming.cli.demo.timeline import TOPICS, Timeline, latencies
from streaming.core.numbers import plural
from streaming.wire import service_commands
from streaming.wire.delivered import kind_of
from streaming.wire.envelope import decode_envelope
from streaming.wire.headers import decoded_headers
from streaming.wire.record_decoders import decode_json
from streaming.wire.service_commands import AlterRoute, CreateService
from streaming.wire.service_views import TransmissionRow, decode_transmission

QUEUES = tuple(service.queue for service in (ORDERS, *STOCKS.values(), INVOICES))
_ROUTE_KEY = msgspec.json.encode(["route", SHOP, ROUTE])
# Deliveries of this time become one line.
_WINDOW_S = 2.0
# Rows of the held messages come within this time.
_ROWS_S = 1.0


class _RouteRow(Struct):
    broker_instance: str | None


_route_decoder = msgspec.json.Decoder(_RouteRow)


@dataclass
class _Window:
    """Deliveries into a queue that are still to be printed."""

    begin_s: float
    things: Counter[str] = field(default_factory=Counter)
    conversations: set[str] = field(default_factory=set)


class ServiceStory(Timeline):
    """Prints events, and collects what the summary needs.

    Attributes:
        said: Conversation -> what its initiator has said, or will say when its timer is due.
        records: The records that were seen.
        held: The number of messages that are held because their service is missing.
    """

    topics = (
        *(TOPICS.arrivals, TOPICS.receives, TOPICS.activations, TOPICS.service_messages, TOPICS.service_commands),
        *(TOPICS.service_definitions, TOPICS.service_transmissions, TOPICS.service_dead_letters, *QUEUES),
    )

    def __init__(self, console: Console, instances: Mapping[str, str]) -> None:
        """Begins without events.

        Args:
            console: The output.
            instances: Broker instance -> database.
        """
        super().__init__(console)
        self.said: dict[str, list[bytes]] = {}
        self.records = ServiceRecords()
        self.held = 0
        self._instances = instances
        self._in: dict[str, list[Delivery]] = defaultdict(list)
        self._arrived_in: Counter[str] = Counter()
        self._first_unread: dict[str, int] = {}
        self._windows: dict[str, _Window] = {}
        self._transmissions: dict[bytes, TransmissionRow] = {}
        self._held_since_s: float | None = None
        self._most_held: tuple[int, int | None] = (0, None)
        self._dead_letters = 0
        self._altered_to: str | None = None

    def _saw(self, message: Message) -> None:
        topic, at_s = message.topic() or "", message.timestamp()[1] / 1000
        if topic in QUEUES:
            self._saw_delivery(topic, message, at_s)
        elif topic == TOPICS.service_messages:
            self._saw_statement(message, at_s)
        elif topic == TOPICS.service_commands:
            self._saw_command(message, at_s)
        elif topic == TOPICS.service_definitions:
            self._saw_definition(message, at_s)
        elif topic == TOPICS.service_transmissions:
            self._saw_transmission(message)
        elif topic == TOPICS.service_dead_letters:
            self._dead_letters += 1
            reason = dict(decoded_headers(message)).get("reason") or b""
            self._line(SHOP, "!!", f"dead letter: {reason.decode(errors='replace')}", "red")
        else:
            super()._saw(message)

    def _saw_statement(self, message: Message, at_s: float) -> None:
        envelope = decode_envelope(decoded_headers(message))
        if envelope.type == "MESSAGE":
            body = message.value() or b""
            self.records.note_sent(envelope.conversation_id, envelope.is_initiator, body, at_s)
        elif envelope.type == "TIMER":
            self.records.timers_s[envelope.conversation_id] = at_s + (envelope.timer_ms or 0) / 1000
            self._line(SHOP, "==", f"a timer is set: due in {(envelope.timer_ms or 0) / 1000:.0f} s", "")

    def _saw_delivery(self, queue: str, message: Message, at_s: float) -> None:
        texts = {name: value.decode(errors="replace") for name, value in decoded_headers(message) if value is not None}
        kind = kind_of(texts.get("message_type_name"))
        delivery = Delivery(queue, texts.get("conversation_id", ""), kind, message.value() or b"", at_s, time.time())
        self.records.deliveries.append(delivery)
        self._in[queue].append(delivery)
        if kind == "TIMER":
            late_s = delivery.seen_s - self.records.timers_s.get(delivery.conversation_id, delivery.seen_s)
            self._line(queue, "->", f"DialogTimer, {late_s * 1000:.0f} ms after it was due", "")
            return
        window = self._windows.setdefault(queue, _Window(time.monotonic()))
        window.things[_name(delivery)] += 1
        window.conversations.add(delivery.conversation_id)

    def _saw_command(self, message: Message, at_s: float) -> None:
        command = service_commands.decode(message.key(), message.value())
        if isinstance(command, AlterRoute):
            self.records.altered_s = at_s
            self._altered_to = command.broker_instance
            there = self._instances.get(command.broker_instance or "", "")
            self._line(command.database, "==", f"ALTER ROUTE {command.route}: to {there}", "bold")
        elif isinstance(command, CreateService):
            self.records.created_s = at_s
            self._line(command.database, "==", f"CREATE SERVICE {command.service}: queue {command.queue}", "bold")

    def _saw_definition(self, message: Message, at_s: float) -> None:
        if message.key() == _ROUTE_KEY and self._altered_to is not None and self.records.in_force_s is None:
            row = decode_json(_route_decoder, message.value())
            if row.broker_instance == self._altered_to:
                self.records.in_force_s = at_s

    def _saw_transmission(self, message: Message) -> None:
        key, value = message.key() or b"", message.value()
        if value is None:
            self._transmissions.pop(key, None)
        else:
            self._transmissions[key] = decode_transmission(value)
        self.held = sum(row.messages for row in self._held_rows())
        if self.held and self._held_since_s is None:
            self._held_since_s = time.monotonic()

    def _held_rows(self) -> list[TransmissionRow]:
        rows = self._transmissions.values()
        return [row for row in rows if row.to_service == INVOICES.name and row.number is not None]

    def _note_arrival(self, queue: str, count: int, at_s: float, is_first: bool) -> None:  # noqa: ARG002
        if is_first:
            self._first_unread[queue] = self._arrived_in[queue]
        self._arrived_in[queue] += count

    def _waited_s(self, queue: str) -> float | None:
        number = self._first_unread.pop(queue, None)
        if number is None or number >= len(self._in[queue]) or queue == INVOICES.queue:
            return None
        sent_s = self.records.sent_s(self._in[queue][number])
        return None if sent_s is None else time.time() - sent_s

    def step(self) -> None:
        """Prints deliveries and held messages after a moment, in which more of them may come."""
        now_s = time.monotonic()
        for queue in [queue for queue, window in self._windows.items() if now_s >= window.begin_s + _WINDOW_S]:
            self._print_window(queue)
        if self._held_since_s is not None and now_s >= self._held_since_s + _ROWS_S and self.held > self._most_held[0]:
            row = self._held_rows()[0]
            self._most_held = self.held, row.number
            what = f"{plural(self.held, 'message')} to {row.to_service} held ({row.number}): {row.reason}"
            self._line(SHOP, "..", what, "yellow")

    def _print_window(self, queue: str) -> None:
        window = self._windows.pop(queue, None)
        if window is not None:
            text = ", ".join(plural(count, thing) for thing, count in window.things.items())
            if window.things.total() > 1:
                text += f" of {plural(len(window.conversations), 'conversation')}"
            super()._line(queue, "->", text, "")

    def _line(self, queue: str, mark: str, text: str, style: str) -> None:
        self._print_window(queue)
        super()._line(queue, mark, text, style)

    def has_delivered_to(self, conversations: Sequence[str]) -> bool:
        """Returns whether a message of each conversation was delivered."""
        return {*conversations} <= {each.conversation_id for each in [*self.records.deliveries]}

    def is_complete(self) -> bool:
        """Returns whether as many messages have arrived as were to arrive, and all were read."""
        # Each conversation has its messages, their answers and an end. The timer is one more.
        expected = sum(2 * len(bodies) + 1 for bodies in self.said.values()) + 1
        return self.arrived == self.read == len(self.records.deliveries) >= expected

    def gave_up(self) -> None:
        """Prints that the time was over before everything was read."""
        self._console.print(f"\n[bold red]not everything was read in time: {self.arrived} arrived, {self.read} read[/]")

    def summarize(self) -> bool:
        """Prints the summary; returns whether everything was as it must be."""
        records = self.records
        sent = sum(map(len, self.said.values()))
        differences, change = records.differences(self.said), records.route_change()
        delivered, answered = records.delivered(), records.answered()
        held, number = self._most_held
        held_until_s, timers_late_s = records.held_until_s(), records.timers_late_s()
        elsewhere = f", {change.wrong} went wrong" if change.wrong else ""
        after = "never delivered" if held_until_s is None else f"delivered {held_until_s:.1f} s after CREATE SERVICE"
        late = ", ".join(f"{late_s * 1000:.0f} ms after it was due" for late_s in timers_late_s) or "never arrived"
        rows = [
            ("sent, delivered, answered", f"{sent}, {delivered}, {answered}"),
            (
                "lost, twice, out of order",
                f"{differences.lost}, {differences.twice}, {differences.out_of_order}",
            ),
            ("pinned, new conversations", f"{change.stayed} stayed in {NORTH}, {change.moved} in {SOUTH}{elsewhere}"),
            ("held for a service", f"{held} ({number}), {after}"),
            ("timer", late),
            ("readers started", str(self.readers)),
            ("send -> delivery", latencies(records.latencies_s(), "messages not held")),
            ("send -> activation", latencies(self._latencies_s, "on empty queues")),
        ]
        if self._dead_letters:
            rows.append(("dead letters", str(self._dead_letters)))
        self._print_summary(rows)
        is_all_there = sent == delivered == answered > 0 and differences == NO_DIFFERENCES
        is_routed = change.stayed > 0 and change.moved > 0 and change.wrong == 0
        return is_all_there and is_routed and held > 0 and len(timers_late_s) == 1 and not self._dead_letters


def _name(delivery: Delivery) -> str:
    """Returns the word for a message."""
    if delivery.kind != "MESSAGE":
        return delivery.kind.lower()
    if delivery.body == REMINDER:
        return "reminder"
    return {ORDERS.queue: "answer", INVOICES.queue: "invoice"}.get(delivery.queue, "order")
