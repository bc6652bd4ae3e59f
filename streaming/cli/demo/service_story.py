"""The output of the demo of services: its timeline and its summary."""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from confluent_kafka import Message
from msgspec import Struct
from rich.console import Console

from streaming.cli.demo.conversation_story import ConversationStory
from streaming.cli.demo.service_plan import INVOICES, NORTH, ORDERS, REMINDER, ROUTE, SHOP, SOUTH, STOCKS
from streaming.cli.demo.service_records import Delivery
from streaming.cli.demo.timeline import TOPICS, latencies
from streaming.core.numbers import plural
from streaming.wire import service_commands
from streaming.wire.envelope import Envelope
from streaming.wire.headers import decoded_headers
from streaming.wire.record_decoders import decode_json
from streaming.wire.service_commands import AlterRoute, CreateService
from streaming.wire.service_views import TransmissionRow

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
    """Deliveries into a queue that were not printed yet."""

    begin_s: float
    things: Counter[str] = field(default_factory=Counter)
    conversations: set[str] = field(default_factory=set)


class ServiceStory(ConversationStory):
    """Prints events, and collects the facts for the summary. `held` counts the messages whose service is missing."""

    timers = 1
    queues = tuple(service.queue for service in (ORDERS, *STOCKS.values(), INVOICES))
    topics = (
        (
            *(TOPICS.arrivals, TOPICS.receives, TOPICS.activations, TOPICS.service_messages, TOPICS.service_commands),
            *(TOPICS.service_definitions, TOPICS.service_transmissions, TOPICS.service_dead_letters, *queues),
        ),
    )

    def __init__(self, console: Console, instances: Mapping[str, str]) -> None:
        """Stores the arguments.

        Args:
            console: The output.
            instances: Broker instance -> database.
        """
        super().__init__(console)
        self._instances = instances
        self._in: dict[str, list[Delivery]] = defaultdict(list)
        self._arrived_in: Counter[str] = Counter()
        self._first_unread: dict[str, int] = {}
        self._windows: dict[str, _Window] = {}
        self._held_since_s: float | None = None
        self._most_held: tuple[int, int | None] = (0, None)
        self._dead_letters = 0
        self._altered_to: str | None = None

    def _saw(self, message: Message) -> None:
        topic, at_s = message.topic(), message.timestamp()[1] / 1000
        if topic == TOPICS.service_commands:
            self._saw_command(message, at_s)
        elif topic == TOPICS.service_definitions:
            self._saw_definition(message, at_s)
        elif topic == TOPICS.service_dead_letters:
            self._dead_letters += 1
            reason = dict(decoded_headers(message)).get("reason") or b""
            self._line(SHOP, "!!", f"dead letter: {reason.decode(errors='replace')}", "red")
        else:
            super()._saw(message)

    def _saw_statement(self, envelope: Envelope, body: bytes, at_s: float) -> None:
        super()._saw_statement(envelope, body, at_s)
        if envelope.type == "TIMER":
            due_s = (envelope.timer_ms or 0) / 1000
            self.records.timers_s[envelope.conversation_id] = at_s + due_s
            self._line(SHOP, "==", f"a timer is set: due in {due_s:.0f} s")

    def _saw_delivery(self, delivery: Delivery) -> None:
        super()._saw_delivery(delivery)
        queue = delivery.queue
        self._in[queue].append(delivery)
        if delivery.kind == "TIMER":
            late_s = delivery.seen_s - self.records.timers_s.get(delivery.conversation_id, delivery.seen_s)
            self._line(queue, "->", f"DialogTimer, {late_s * 1000:.0f} ms after it was due")
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
        super()._saw_transmission(message)
        if self.held and self._held_since_s is None:
            self._held_since_s = time.monotonic()

    def _held_rows(self) -> list[TransmissionRow]:
        rows = self._transmissions.values()
        return [row for row in rows if row.to_service == INVOICES.name and row.number is not None]

    def _saw_arrival(self, queue: str, count: int, at_s: float) -> None:
        if self._unread[queue] <= 0:
            self._first_unread[queue] = self._arrived_in[queue]
        self._arrived_in[queue] += count
        super()._saw_arrival(queue, count, at_s)

    def _waited_s(self, queue: str) -> float | None:
        number = self._first_unread.pop(queue, None)
        if number is None or number >= len(self._in[queue]) or queue == INVOICES.queue:
            return None
        sent_s = self.records.sent_s(self._in[queue][number])
        return None if sent_s is None else time.time() - sent_s

    def step(self) -> None:
        """Prints deliveries and held messages, each line as soon as it is complete."""
        super().step()
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
            super()._line(queue, "->", text)

    def _line(self, queue: str, mark: str, text: str, style: str = "") -> None:
        self._print_window(queue)
        super()._line(queue, mark, text, style)

    def is_complete(self) -> bool:
        """Returns whether all messages were delivered, and readers have read them."""
        return self.arrived == self.read == len(self.records.deliveries) and super().is_complete()

    def _missing(self) -> str:
        return f"not everything was read in time: {self.arrived} arrived, {self.read} read"

    def summarize(self) -> bool:
        """Prints the summary; returns whether everything was as expected."""
        records, change = self.records, self.records.route_change()
        held, number = self._most_held
        held_until_s, timers_late_s = records.held_until_s(), records.timers_late_s()
        elsewhere = f", {change.wrong} went wrong" if change.wrong else ""
        after = "never delivered" if held_until_s is None else f"delivered {held_until_s:.1f} s after CREATE SERVICE"
        late = ", ".join(f"{late_s * 1000:.0f} ms after it was due" for late_s in timers_late_s) or "never arrived"
        is_all_there = self._account(
            ("pinned, new conversations", f"{change.stayed} stayed in {NORTH}, {change.moved} in {SOUTH}{elsewhere}"),
            ("held for a service", f"{held} ({number}), {after}"),
            ("timer", late),
            ("readers started", str(self.readers)),
            ("send -> delivery", latencies(records.latencies_s(), "messages not held")),
            ("send -> activation", latencies(self._latencies_s, "on empty queues")),
            *([("dead letters", str(self._dead_letters))] if self._dead_letters else []),
        )
        is_routed = change.stayed > 0 and change.moved > 0 and change.wrong == 0
        return is_all_there and is_routed and held > 0 and len(timers_late_s) == 1 and not self._dead_letters


def _name(delivery: Delivery) -> str:
    """Returns the word for a message."""
    if delivery.kind != "MESSAGE":
        return delivery.kind.lower()
    if delivery.body == REMINDER:
        return "reminder"
    return {ORDERS.queue: "answer", INVOICES.queue: "invoice"}.get(delivery.queue, "order")
