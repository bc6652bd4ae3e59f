"""The demo of services: a shop sends orders to a stock, while routes and services change.

Monitor, router and transport run as a user starts them, and the activator starts the readers. The commands are those of
`queue-activation database`, `service` and `route`.
"""

import sys
import threading
import uuid

from rich.console import Console

from producers.conversations import Conversation
from producers.queue_topics import create_queue_topics
from producers.services import ServiceClient
from streaming.cli.demo.service_plan import (
    INVOICES,
    LAST,
    NORTH,
    ORDERS,
    REMINDER,
    ROUTE,
    SHOP,
    SOUTH,
    STOCK,
    STOCKS,
    DemoService,
)
from streaming.cli.demo.service_story import QUEUES, ServiceStory
from streaming.cli.demo.stage import Actor, play, set_up
from streaming.cli.demo.starters import Reader
from streaming.cli.monitor_process import all_programs
from streaming.cli.routing.service_commands import build, carry_out
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.wire.service_commands import AlterRoute, CreateDatabase, CreateRoute, CreateService, ServiceCommand
from streaming.wire.topics import Topics

# The start of two Spark programs takes about 20 s with 2 cores.
READY_TIMEOUT_S = 180.0
# From the first message to the end. Usually everything is read after about 35 s.
RUN_TIMEOUT_S = 150.0

# One for each core of a small machine, because each partition costs time in each batch of the router.
SERVICE_PARTITIONS = 2
# Conversations that go on for as long as orders flow, and the interval between their messages.
STANDING_ORDERS = 4
BEAT_S = 0.5
# In each interval another conversation begins, with as many messages.
SHORT_ORDER_LINES = 3
INVOICE_CONVERSATIONS, INVOICE_LINES = 3, 2
# Long enough that all readers have exited before.
TIMER_S = 8.0

# Pauses between the parts of the story.
FLOW_S = 6.0
CHANGED_S = 4.0
HELD_S = 4.0
CREATED_S = 3.0

TOPICS = Topics()


def run(console: Console) -> int:
    """Runs the demo; returns 0 if every message was delivered once, in order, where it belongs, and was answered.

    Raises:
        UserError: Java or the jars are missing, or a part of the demo does not start.
    """
    with set_up(console, "[bold]queue-activation demo services[/]: programs talk to services, by name") as stage:
        with stage.progress("creating databases, services and a route"):
            instances = _define(stage.cluster)
        with stage.progress("starting monitor, router and transport (Spark)") as start:
            programs = stage.parts.enter_context(
                all_programs(stage.cluster.bootstrap_servers, stage.folder, READY_TIMEOUT_S)
            )
        _introduce(console)
        story = ServiceStory(console, {instance: database for database, instance in instances.items()})
        flow = _Flow(stage.cluster, story)
        plot = _Plot(stage.cluster, story, flow, instances[SOUTH])
        longest_s = start.longest_s(RUN_TIMEOUT_S)
        if not play(stage, story, _readers(), [flow, plot], [programs], story.is_complete, longest_s):
            story.gave_up()
        return 0 if story.summarize() else 1


def _define(cluster: Cluster) -> dict[str, str]:
    """Creates the topics, and defines all services but one; returns the broker instance of each database."""
    Admin(cluster).create_topics(TOPICS.service_specs(), SERVICE_PARTITIONS, 1)
    create_queue_topics(cluster.bootstrap_servers, QUEUES, partitions=1, replication_factor=1)
    instances = {database: str(uuid.uuid4()) for database in (SHOP, *STOCKS)}
    way = {"service_name": STOCK, "broker_instance": instances[NORTH], "address": "LOCAL"}
    carry_out(
        cluster,
        TOPICS,
        *(build(CreateDatabase, database=name, broker_instance=instance) for name, instance in instances.items()),
        *map(_create, (ORDERS, *STOCKS.values())),
        build(CreateRoute, database=SHOP, route=ROUTE, **way),
    )
    return instances


def _create(service: DemoService) -> ServiceCommand:
    return build(CreateService, database=service.database, service=service.name, queue=service.queue)


def _introduce(console: Console) -> None:
    console.print()
    for service in (ORDERS, *STOCKS.values()):
        console.print(f"  database {service.database:<11}  service {service.name:<15}  queue {service.queue}")
    console.print(f"  route {ROUTE} of {SHOP}: {STOCK} is in {NORTH}")


def _readers() -> list[Reader]:
    command = [sys.executable, "-m", "streaming.cli.demo.service_readers"]
    return [
        Reader(service.queue, [*command, service.program, "{queue}"], 1)
        for service in (ORDERS, *STOCKS.values(), INVOICES)
    ]


class _Flow(Actor):
    """Sends orders to the stock: lines of standing orders, and short orders of a few lines.

    Attributes:
        standing: The conversations of the standing orders.
    """

    def __init__(self, cluster: Cluster, story: ServiceStory) -> None:
        super().__init__("flow")
        self.standing: list[str] = []
        self._cluster = cluster
        self._story = story
        self._is_ending = threading.Event()

    def end(self) -> None:
        """Ends the flow: the standing orders get their last line, but one gets a timer instead."""
        self._is_ending.set()

    def _act(self) -> None:
        with ServiceClient(self._cluster.bootstrap_servers, SHOP) as client:
            standing = [client.begin(ORDERS.name, STOCK) for _ in range(STANDING_ORDERS)]
            while not self._is_ending.is_set():
                with client.transaction():
                    for conversation in standing:
                        _say(self._story, conversation)
                    _say_all(self._story, client.begin(ORDERS.name, STOCK), SHORT_ORDER_LINES)
                self.standing = [conversation.conversation_id for conversation in standing]
                self.pause(BEAT_S)
            late, *others = standing
            with client.transaction():
                for conversation in others:
                    _say(self._story, conversation, LAST)
                late.set_timer(TIMER_S)
                # The shop's reader says it when the timer is due.
                self._story.said[late.conversation_id].append(REMINDER)


class _Plot(Actor):
    """Changes the route while orders flow, sends invoices before their service is there, and ends the flow."""

    def __init__(self, cluster: Cluster, story: ServiceStory, flow: _Flow, south: str) -> None:
        super().__init__("plot")
        self._cluster = cluster
        self._story = story
        self._flow = flow
        self._south = south

    def _act(self) -> None:
        self.pause(FLOW_S)
        self.wait_until(lambda: bool(self._flow.standing) and self._story.has_delivered_to(self._flow.standing))
        change = build(AlterRoute, database=SHOP, route=ROUTE, broker_instance=self._south)
        carry_out(self._cluster, TOPICS, change)
        self.pause(CHANGED_S)
        with ServiceClient(self._cluster.bootstrap_servers, SHOP) as client, client.transaction():
            for _ in range(INVOICE_CONVERSATIONS):
                _say_all(self._story, client.begin(ORDERS.name, INVOICES.name), INVOICE_LINES)
        self.wait_until(lambda: self._story.held == INVOICE_CONVERSATIONS * INVOICE_LINES)
        self.pause(HELD_S)
        carry_out(self._cluster, TOPICS, _create(INVOICES))
        self.pause(CREATED_S)
        self._flow.end()


def _say(story: ServiceStory, conversation: Conversation, message_type: str | None = None) -> None:
    """Sends the next line of a conversation."""
    said = story.said.setdefault(conversation.conversation_id, [])
    body = b"line %d" % (len(said) + 1)
    conversation.send(body, message_type=message_type)
    said.append(body)


def _say_all(story: ServiceStory, conversation: Conversation, lines: int) -> None:
    """Sends all lines of a conversation."""
    for number in range(lines):
        _say(story, conversation, LAST if number == lines - 1 else None)
