"""The demo of instances: orders in one Kafka cluster, the stock in another, and a link between them that is cut.

Routers and transports of three instances run as a user starts them; north has a broker of its own, south and west share
one. Readers are threads of this process.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from producers.conversations import Conversation
from producers.queue_topics import create_queue_topics
from producers.reader import QueueReader
from producers.received_message import ReceivedMessage
from producers.services import ServiceClient
from streaming.cli.demo.instance_plan import AUDIT, ORDERS, QUEUES, RESERVE, SHOP, Place, definitions, failover
from streaming.cli.demo.instance_records import Records
from streaming.cli.demo.service_plan import LAST
from streaming.cli.demo.service_readers import clerk, shop
from streaming.cli.demo.service_records import NO_DIFFERENCES
from streaming.cli.demo.stage import progress
from streaming.cli.demo.timeline import latencies
from streaming.cli.routing.service_commands import carry_out
from streaming.core.numbers import plural
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system import stop_signals
from streaming.system.embedded_broker import HOST, EmbeddedBroker
from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment
from streaming.system.relay import Relay
from streaming.system.threads import WatchedThread

READY_TIMEOUT_S = 120.0
# From the first message to the end; usually about a minute.
RUN_TIMEOUT_S = 110.0

PARTITIONS = 2
STANDING_ORDERS = 4
BEAT_S = 0.5
ORDER_LINES = 3
AUDIT_CONVERSATIONS = 3
MIRRORED_ORDERS = 5
FLOW_S = 5.0
CUT_S = 20.0
AUDITS_AFTER_S = 3.0
# Deliveries of this time become one line.
_WINDOW_S = 2.5
_COLORS = {"north": "cyan", "south": "magenta", "west": "green"}


class _GaveUpError(Exception):
    """Something did not happen in time."""


def run(console: Console) -> int:
    """Runs the demo; returns 0 if every message was delivered once and in order, and was answered.

    Raises:
        UserError: Java or the jars are missing, or a part of the demo does not start.
    """
    console.print("[bold]queue-activation demo instances[/]: services in several Kafka clusters\n")
    with ExitStack() as parts, stop_signals.taken() as signals:
        folder = Path(parts.enter_context(tempfile.TemporaryDirectory(prefix="queue-activation-demo-")))
        links = [parts.enter_context(Relay()) for _ in range(2)]
        with progress(console, "starting two Kafka brokers"):
            brokers = [parts.enter_context(EmbeddedBroker(relay=link)) for link in links]
        clusters = [Cluster(broker.bootstrap_servers) for broker in brokers]
        west = Place("west", clusters[1], "west-", ("--message-forwarding", "ON"))
        places = [Place("north", clusters[0]), Place("south", clusters[1]), west]
        with progress(console, "creating topics, databases, services and routes"):
            _define(places, links)
        with progress(console, "starting three routers (Spark) and three transports") as start:
            programs = _start(places, folder, parts)
        signals.only_note()
        records = parts.enter_context(Records(places))
        client = parts.enter_context(ServiceClient(clusters[0].bootstrap_servers, SHOP))
        parts.enter_context(_readers(places))
        play = _Play(console, places, links, records, client, start.longest_s(RUN_TIMEOUT_S))

        def check() -> None:
            signals.check()
            for program in programs:
                program.require_running()

        return 0 if play.run(check) else 1


def _define(places: list[Place], links: list[Relay]) -> None:
    """Creates topics, services and routes of all places."""
    north, south = (f"tcp://{HOST}:{link.port}" for link in links)
    direct = f"tcp://{places[1].cluster.bootstrap_servers}"
    commands = definitions(north, south, direct, f"{direct}/{places[2].prefix}")
    for place in places:
        specs = [*place.topics.specs(), *place.topics.service_specs()]
        Admin(place.cluster).create_topics(specs, PARTITIONS, 1)
        create_queue_topics(place.cluster.bootstrap_servers, place.queues, partitions=1, replication_factor=1)
        carry_out(place.cluster, place.topics, *commands[place.name])


def _start(places: list[Place], folder: Path, parts: ExitStack) -> list[ChildProcess]:
    """Starts the programs of all places, and waits until they are ready."""
    started = []
    for place in places:
        connection = ["--bootstrap-servers", place.cluster.bootstrap_servers, "--topic-prefix", place.prefix]
        checkpoint = ["--checkpoint-location", str(folder / place.name)]
        for name, options in (("router", [*checkpoint, *place.options]), ("transport", [])):
            log_file = folder / f"{name}-{place.name}.log"
            command = [*THIS_COMMAND, name, *connection, *options]
            process = parts.enter_context(ChildProcess(command, log_file=log_file, env=own_environment()))
            started.append((process, f"{name} ready"))
    for process, line in started:
        process.wait_until_said(line, READY_TIMEOUT_S)
    return [process for process, _ in started]


@contextmanager
def _readers(places: list[Place]) -> Iterator[None]:
    """Reads all queues in the block: clerks answer, and the shop takes the answers."""
    threads = [
        _Reader(place, queue, shop if queue == "answers" else clerk) for place in places for queue in place.queues
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.is_over = True
        for thread in threads:
            thread.join(stop_signals.GRACE_S)
            thread.check()


class _Reader(WatchedThread):
    """Reads a queue until it is over."""

    def __init__(self, place: Place, queue: str, take: Callable[[list[ReceivedMessage]], None]) -> None:
        super().__init__(f"reader of {queue}", self._read)
        self.is_over = False
        self._place = place
        self._queue = queue
        self._take = take

    def _read(self) -> None:
        servers = self._place.cluster.bootstrap_servers
        with QueueReader(servers, self._queue, topic_prefix=self._place.prefix) as reader:
            while not self.is_over:
                with reader.receive(50, 0.2) as messages:
                    self._take(messages)


class _Play:
    """The story: orders flow, the link is cut and mended, a third instance forwards, and a mirror takes over."""

    def __init__(
        self,
        console: Console,
        places: list[Place],
        links: list[Relay],
        records: Records,
        client: ServiceClient,
        longest_s: float,
    ) -> None:
        self._console = console
        self._places = {place.name: place for place in places}
        self._links = links
        self._records = records
        self._client = client
        self._longest_s = longest_s
        self._check: Callable[[], None] = lambda: None
        self._standing: list[Conversation] = []
        self._begin_s = self._beat_s = self._printed_s = time.monotonic()
        self._facts: list[tuple[str, str]] = []

    def run(self, check: Callable[[], None]) -> bool:
        """Plays it; returns whether everything was as it must be. `check` raises what ends the demo."""
        self._check = check
        self._introduce()
        self._begin_s = self._printed_s = time.monotonic()
        is_complete = False
        try:
            self._flow()
            self._cut()
            self._fail_over()
            self._until(self._records.is_complete, "the last answers")
            is_complete = True
        except _GaveUpError as error:
            self._console.print(f"\n[bold red]{error} did not come in time[/]")
        self._print_deliveries()
        return self._summarize(is_complete=is_complete)

    def _introduce(self) -> None:
        self._console.print()
        for text in (
            f"north: database shop, service {ORDERS}",
            f"south: database stock, service {RESERVE}, and service {AUDIT}",
            f"west:  the mirror of stock; sends messages for {AUDIT} on",
        ):
            self._console.print(f"  {text}")
        self._console.print()

    def _flow(self) -> None:
        self._standing = [self._client.begin(ORDERS, RESERVE) for _ in range(STANDING_ORDERS)]
        self._line("north", f"orders flow to {RESERVE}: {plural(STANDING_ORDERS, 'conversation')}, and short ones")
        self._until(lambda: bool(self._records.arrived_in("reserve")), "the first order")
        self._go_on(FLOW_S)

    def _cut(self) -> None:
        for link in self._links:
            link.cut()
        self._line("", f"the link between north and south is cut for {CUT_S:.0f} s", "bold")
        cut_s = time.monotonic()
        self._go_on(AUDITS_AFTER_S)
        audits: dict[str, list[bytes]] = {}
        for _ in range(AUDIT_CONVERSATIONS):
            audits |= self._order(AUDIT)
        self._line("north", f"{plural(AUDIT_CONVERSATIONS, 'message')} to {AUDIT}, whose route leads to west")
        self._until(lambda: self._records.has(audits), "the messages by way of west")
        self._print_deliveries()
        self._line("west", "has sent them on to south, past the link", "bold")
        self._facts.append(("forwarded by west", plural(AUDIT_CONVERSATIONS, "message")))
        self._go_on(cut_s + CUT_S - time.monotonic())
        said = {name: [*bodies] for name, bodies in self._records.said.items()}
        waiting = self._records.waiting()
        self._line("north", f"{plural(waiting, 'message')} wait to be acknowledged", "yellow")
        mended_s = time.monotonic()
        for link in self._links:
            link.mend()
        self._line("", "the link is mended", "bold")
        self._until(lambda: self._records.has(said), "the messages that waited")
        late_s = time.monotonic() - mended_s
        self._print_deliveries()
        self._line("south", f"has everything that waited, after {late_s:.1f} s")
        self._facts.append(("waited for the link", f"{plural(waiting, 'message')}, delivered within {late_s:.1f} s"))

    def _fail_over(self) -> None:
        with self._client.transaction():
            for conversation in self._standing:
                self._say(conversation, is_last=True)
        self._standing = []
        self._until(self._records.is_complete, "the end of the standing orders")
        self._print_deliveries()
        self._line("", "south's database stock becomes a MIRROR, and west's the PRINCIPAL", "bold")
        for name, command in failover().items():
            place = self._places[name]
            carry_out(place.cluster, place.topics, command)
        changed_s = time.monotonic()
        orders: dict[str, list[bytes]] = {}
        for _ in range(MIRRORED_ORDERS):
            orders |= self._order(RESERVE)
        self._line("north", f"{plural(MIRRORED_ORDERS, 'new conversation')} with {RESERVE}")
        self._until(lambda: self._records.has(orders), "the orders in west")
        late_s = time.monotonic() - changed_s
        self._print_deliveries()
        moved = len(self._records.arrived_in("mirror") & orders.keys())
        self._line("west", f"has taken over: {plural(moved, 'conversation')}, {late_s:.1f} s after the change", "bold")
        self._facts.append(("in the mirror", f"{moved} of {plural(MIRRORED_ORDERS, 'new conversation')}"))

    def _order(self, service: str) -> dict[str, list[bytes]]:
        """Begins a conversation with a few messages; returns it and what it says."""
        with self._client.transaction():
            conversation = self._client.begin(ORDERS, service)
            for number in range(ORDER_LINES if service == RESERVE else 1):
                self._say(conversation, is_last=service == AUDIT or number == ORDER_LINES - 1)
        name = conversation.conversation_id
        return {name: self._records.said[name]}

    def _say(self, conversation: Conversation, *, is_last: bool = False) -> None:
        name = conversation.conversation_id
        body = b"line %d" % (len(self._records.said.get(name, ())) + 1)
        conversation.send(body, message_type=LAST if is_last else None)
        self._records.say(name, body)

    def _go_on(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self._step()

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        while not condition():
            if time.monotonic() > self._begin_s + self._longest_s:
                raise _GaveUpError(what)
            self._step()

    def _step(self) -> None:
        self._check()
        self._records.look()
        now_s = time.monotonic()
        if self._standing and now_s >= self._beat_s:
            self._beat_s = now_s + BEAT_S
            with self._client.transaction():
                for conversation in self._standing:
                    self._say(conversation)
            self._order(RESERVE)
        if now_s >= self._printed_s + _WINDOW_S:
            self._print_deliveries()

    def _print_deliveries(self) -> None:
        self._printed_s = time.monotonic()
        for queue, count in sorted(self._records.new.items()):
            self._line(QUEUES[queue], f"-> {plural(count, 'message')} in queue {queue}")
        self._records.new.clear()

    def _line(self, place: str, text: str, style: str = "") -> None:
        elapsed = f"{time.monotonic() - self._begin_s:6.1f} s  "
        line = Text.assemble((elapsed, "dim"), (f"{place:<6}", _COLORS.get(place, "")), (text, style))
        self._console.print(line, soft_wrap=True)

    def _summarize(self, *, is_complete: bool) -> bool:
        differences, (sent, delivered, answered) = self._records.differences(), self._records.counts()
        table = Table(show_header=False, box=None, pad_edge=False)
        lost = f"{differences.lost}, {differences.twice}, {differences.out_of_order}"
        for row in (
            ("sent, delivered, answered", f"{sent}, {delivered}, {answered}"),
            ("lost, twice, out of order", lost),
            *self._facts,
            ("send -> delivery", latencies(self._records.latencies_s, "messages, also late ones")),
        ):
            table.add_row(Text(row[0], "dim"), row[1])
        self._console.print("\nsummary", style="bold")
        self._console.print(table)
        is_moved = self._facts[-1:] == [("in the mirror", f"{MIRRORED_ORDERS} of {MIRRORED_ORDERS} new conversations")]
        return is_complete and is_moved and differences == NO_DIFFERENCES and sent == delivered == answered
