"""The demo of instances: orders in one Kafka cluster, the stock in another, and a link between them that is cut.

Routers and transports of three instances run as a user starts them; north has a broker of its own, south and west share
a broker. Readers are threads of this process.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console

from producers.reader import QueueReader
from producers.received_message import ReceivedMessage
from producers.services import ServiceClient
from streaming.cli.demo.instance_plan import AUDIT, Place, definitions, failover
from streaming.cli.demo.instance_story import InstanceStory
from streaming.cli.demo.service_plan import ORDERS, SHOP, STOCK
from streaming.cli.demo.service_readers import clerk, shop
from streaming.cli.demo.shop import SHORT_ORDER_LINES, STANDING_ORDERS, Flow, define, say_all
from streaming.cli.demo.stage import Actor, Stage, brokers, play
from streaming.cli.routing.service_commands import carry_out
from streaming.core.numbers import plural
from streaming.system.embedded_broker import HOST
from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment
from streaming.system.relay import Relay

AUDIT_CONVERSATIONS = 3
MIRRORED_ORDERS = 5
FLOW_S = 5.0
CUT_S = 20.0
AUDITS_AFTER_S = 3.0


def run(console: Console) -> int:
    """Runs the demo; returns 0 if every message was delivered once and in order, and was answered.

    Raises:
        UserError: Java or the jars are missing, or a part of the demo does not start.
    """
    headline = "[bold]queue-activation demo instances[/]: services in several Kafka clusters"
    with Relay() as to_north, Relay() as to_south, brokers(console, headline, [to_north, to_south]) as stage:
        north, south = stage.clusters
        places = [
            Place("north", north),
            Place("south", south),
            Place("west", south, "west-", ("--message-forwarding", "ON")),
        ]
        links = [to_north, to_south]
        with stage.progress("creating topics, databases, services and routes"):
            _define(places, links)
        with stage.progress("starting three routers (Spark) and three transports"):
            programs = _start(places, stage)
        _introduce(console)
        story = InstanceStory(console)
        flow = Flow(north, story)
        readers = [_Reader(place, queue) for place in places for queue in place.queues]
        plot = _Plot(places, links, story, flow, readers)
        return play(stage, story, [*readers, flow, plot], programs)


def _define(places: Sequence[Place], links: Sequence[Relay]) -> None:
    """Creates topics, services and routes of all instances."""
    north, south = (f"tcp://{HOST}:{link.port}" for link in links)
    direct = f"tcp://{places[1].cluster.bootstrap_servers}"
    commands = definitions(north, south, direct, f"{direct}/{places[2].prefix}")
    for place in places:
        define(place.cluster, place.topics, place.queues, *commands[place.name])


def _start(places: Sequence[Place], stage: Stage) -> list[ChildProcess]:
    """Starts the programs of all instances, and waits until they are ready."""
    started = []
    for place in places:
        connection = ["--bootstrap-servers", place.cluster.bootstrap_servers, "--topic-prefix", place.prefix]
        checkpoint = ["--checkpoint-location", str(stage.folder / place.name)]
        for name, options in (("router", [*checkpoint, *place.options]), ("transport", [])):
            log_file = stage.folder / f"{name}-{place.name}.log"
            command = [*THIS_COMMAND, name, *connection, *options]
            process = stage.parts.enter_context(ChildProcess(command, log_file=log_file, env=own_environment()))
            started.append((process, f"{name} ready"))
    for process, line in started:
        process.wait_until_said(line)
    return [process for process, _ in started]


def _introduce(console: Console) -> None:
    console.print()
    console.print(f"  north: database shop, service {ORDERS.name}")
    console.print(f"  south: database stock, service {STOCK}, and service {AUDIT}")
    console.print(f"  west:  the mirror of stock; sends messages for {AUDIT} on")


class _Reader(Actor):
    """Reads a queue until the demo is over: a clerk answers, and the shop takes the answers."""

    def __init__(self, place: Place, queue: str) -> None:
        super().__init__(f"reader of {queue}")
        self._place = place
        self._queue = queue
        self._take: Callable[[list[ReceivedMessage]], None] = shop if queue == ORDERS.queue else clerk

    def _act(self) -> None:
        servers = self._place.cluster.bootstrap_servers
        with QueueReader(servers, self._queue, topic_prefix=self._place.prefix) as reader:
            while not self.is_over.is_set():
                with reader.receive(50, 0.2) as messages:
                    self._take(messages)


class _Plot(Actor):
    """Cuts the link and mends it, while a third instance forwards; then a mirror takes over."""

    def __init__(
        self,
        places: Sequence[Place],
        links: Sequence[Relay],
        story: InstanceStory,
        flow: Flow,
        readers: Sequence[_Reader],
    ) -> None:
        super().__init__("plot")
        self._places = {place.name: place for place in places}
        self._links = links
        self._story = story
        self._flow = flow
        self._readers = readers

    def _act(self) -> None:
        orders = plural(STANDING_ORDERS, "conversation")
        self._story.note("north", f"orders flow to {STOCK}: {orders}, and short ones")
        self._wait(lambda: bool(self._story.records.conversations_in("reserve")), "the first order")
        self.pause(FLOW_S)
        with ServiceClient(self._places["north"].cluster.bootstrap_servers, SHOP) as client:
            self._cut(client)
            self._fail_over(client)
        self._wait(self._story.is_complete, "the last answers")
        for reader in self._readers:
            reader.is_over.set()

    def _cut(self, client: ServiceClient) -> None:
        story = self._story
        for link in self._links:
            link.cut()
        cut_s = time.monotonic()
        story.note("", f"the link between north and south is cut for {CUT_S:.0f} s", "bold")
        self.pause(AUDITS_AFTER_S)
        audits = plural(AUDIT_CONVERSATIONS, "message")
        story.note("north", f"{audits} to {AUDIT}, whose route leads to west")
        self._wait_for(_begin(story, client, AUDIT, AUDIT_CONVERSATIONS, 1), "the messages by way of west")
        story.note("west", "has sent them on to south, past the link", "bold")
        story.facts.append(("forwarded by west", audits))
        self.pause(cut_s + CUT_S - time.monotonic())
        said = {conversation_id: [*bodies] for conversation_id, bodies in [*story.said.items()]}
        waiting = plural(story.held, "message")
        story.note("north", f"{waiting} wait to be acknowledged", "yellow")
        mended_s = time.monotonic()
        for link in self._links:
            link.mend()
        story.note("", "the link is mended", "bold")
        self._wait_for(said, "the messages that waited")
        late_s = time.monotonic() - mended_s
        story.note("south", f"has everything that waited, after {late_s:.1f} s")
        story.facts.append(("waited for the link", f"{waiting}, delivered within {late_s:.1f} s"))

    def _fail_over(self, client: ServiceClient) -> None:
        story = self._story
        self._flow.end()
        self._wait(lambda: not self._flow.is_alive() and story.is_complete(), "the end of the standing orders")
        story.note("", "south's database stock becomes a MIRROR, and west's the PRINCIPAL", "bold")
        for name, command in failover().items():
            place = self._places[name]
            carry_out(place.cluster, place.topics, command)
        changed_s = time.monotonic()
        story.note("north", f"{plural(MIRRORED_ORDERS, 'new conversation')} with {STOCK}")
        orders = _begin(story, client, STOCK, MIRRORED_ORDERS, SHORT_ORDER_LINES)
        self._wait_for(orders, "the orders in west")
        late_s = time.monotonic() - changed_s
        moved = len(story.records.conversations_in("mirror") & orders.keys())
        story.is_moved = moved == MIRRORED_ORDERS
        story.note("west", f"has taken over: {plural(moved, 'conversation')}, {late_s:.1f} s after the change", "bold")
        story.facts.append(("in the mirror", f"{moved} of {plural(MIRRORED_ORDERS, 'new conversation')}"))

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        self._story.awaited = what
        self.wait_until(condition)

    def _wait_for(self, said: Mapping[str, Sequence[bytes]], what: str) -> None:
        self._wait(lambda: self._story.records.has_delivered(said), what)


def _begin(
    story: InstanceStory, client: ServiceClient, service: str, count: int, lines: int
) -> Mapping[str, Sequence[bytes]]:
    """Begins `count` conversations; returns conversation -> its messages."""
    with client.transaction():
        conversations = [client.begin(ORDERS.name, service) for _ in range(count)]
        for conversation in conversations:
            say_all(story, conversation, lines)
    return {each.conversation_id: story.said[each.conversation_id] for each in conversations}
