"""The demo of services: a shop sends orders to a stock, while routes and services change.

Monitor, router and transport run as a user starts them, and the activator starts the readers. The commands are those of
`queue-activation database`, `service` and `route`.
"""

import sys
import uuid

from rich.console import Console

from producers.services import ServiceClient
from streaming.cli.demo.service_plan import INVOICES, NORTH, ORDERS, ROUTE, SHOP, SOUTH, STOCK, STOCKS, DemoService
from streaming.cli.demo.service_story import ServiceStory
from streaming.cli.demo.shop import Flow, define, say_all
from streaming.cli.demo.stage import Actor, play, set_up
from streaming.cli.demo.starters import Reader
from streaming.cli.demo.timeline import TOPICS
from streaming.cli.monitor_process import all_programs
from streaming.cli.routing.service_commands import carry_out
from streaming.kafka.clients import Cluster
from streaming.wire.service_commands import AlterRoute, CreateDatabase, CreateRoute, CreateService

INVOICE_CONVERSATIONS, INVOICE_LINES = 3, 2
# Long enough that all readers have exited before.
TIMER_S = 8.0

# Pauses between the parts of the story.
FLOW_S = 6.0
CHANGED_S = 4.0
HELD_S = 4.0
CREATED_S = 3.0


def run(console: Console) -> int:
    """Runs the demo; returns 0 if every message was delivered once, in order, where it belongs, and was answered.

    Raises:
        UserError: Java or the jars are missing, or a part of the demo does not start.
    """
    with set_up(console, "[bold]queue-activation demo services[/]: programs talk to services, by name") as stage:
        instances = {database: str(uuid.uuid4()) for database in (SHOP, *STOCKS)}
        with stage.progress("creating databases, services and a route"):
            define(
                stage.cluster,
                TOPICS,
                ServiceStory.queues,
                *(CreateDatabase(name, instance) for name, instance in instances.items()),
                *map(_create, (ORDERS, *STOCKS.values())),
                CreateRoute(SHOP, ROUTE, "LOCAL", STOCK, instances[NORTH]),
            )
        with stage.progress("starting monitor, router and transport (Spark)"):
            servers = stage.cluster.bootstrap_servers
            programs = stage.parts.enter_context(all_programs(servers, stage.folder))
        _introduce(console)
        story = ServiceStory(console, {instance: database for database, instance in instances.items()})
        flow = Flow(stage.cluster, story, TIMER_S)
        plot = _Plot(stage.cluster, story, flow, instances[SOUTH])
        return play(stage, story, [flow, plot], [programs], _readers())


def _create(service: DemoService) -> CreateService:
    return CreateService(service.database, service.name, service.queue)


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


class _Plot(Actor):
    """Changes the route while orders flow, sends invoices before their service is there, and ends the flow."""

    def __init__(self, cluster: Cluster, story: ServiceStory, flow: Flow, south: str) -> None:
        super().__init__("plot")
        self._cluster = cluster
        self._story = story
        self._flow = flow
        self._south = south

    def _act(self) -> None:
        self.pause(FLOW_S)
        self.wait_until(self._standing_orders_are_in_north)
        carry_out(self._cluster, TOPICS, AlterRoute(SHOP, ROUTE, broker_instance=self._south))
        self.pause(CHANGED_S)
        with ServiceClient(self._cluster.bootstrap_servers, SHOP) as client, client.transaction():
            for _ in range(INVOICE_CONVERSATIONS):
                say_all(self._story, client.begin(ORDERS.name, INVOICES.name), INVOICE_LINES)
        self.wait_until(lambda: self._story.held == INVOICE_CONVERSATIONS * INVOICE_LINES)
        self.pause(HELD_S)
        carry_out(self._cluster, TOPICS, _create(INVOICES))
        self.pause(CREATED_S)
        self._flow.end()

    def _standing_orders_are_in_north(self) -> bool:
        standing = self._flow.standing
        return bool(standing) and self._story.records.conversations_in(STOCKS[NORTH].queue).issuperset(standing)
