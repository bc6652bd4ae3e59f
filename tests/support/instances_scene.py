"""Three small instances without Spark and Kafka, for tests of one rule at a time."""

from random import Random
from typing import Any

from streaming.core.conversations.decisions import Deliver
from streaming.core.conversations.endpoint_states import State
from streaming.core.conversations.kinds import Kind
from streaming.core.conversations.settings import ConversationSettings
from streaming.core.routing.conversation import Instance
from streaming.wire.envelope import Envelope
from streaming.wire.service_commands import (
    CreateDatabase,
    CreateRoute,
    CreateService,
    ServiceCommand,
)
from tests.support.instances_world import MakeShard, Network, Site
from tests.support.plain_shard import PlainShard

NORTH, SOUTH, WEST = "tcp://north:1", "tcp://south:1", "tcp://west:1"
ORDERS, STOCK = "Orders", "Stock"
IN_NORTH, IN_SOUTH, IN_WEST = (f"{number}0000000-0000-4000-8000-000000000000" for number in range(3))
C = "c"


class Scene:
    """North has the service Orders, South has Stock, West has another Stock. Each knows the way to the others."""

    make: MakeShard = PlainShard

    def __init__(self, **settings: Any) -> None:
        self.network = Network(Random(1), is_bad=False)  # noqa: S311  (no secret)
        limits = ConversationSettings(**settings)
        self.north, self.south, self.west = (
            Site(self.network, each, limits, self.make) for each in (NORTH, SOUTH, WEST)
        )
        self.define(
            self.north, CreateDatabase("N", IN_NORTH), CreateService("N", ORDERS, "orders"), to(STOCK, SOUTH, "N")
        )
        for site, instance in ((self.south, IN_SOUTH), (self.west, IN_WEST)):
            self.define(site, CreateDatabase("S", instance), CreateService("S", STOCK, "stock"), to(ORDERS, NORTH, "S"))

    def define(self, site: Site, *commands: ServiceCommand) -> None:
        site.commands += commands
        self.go_on()

    def go_on(self, wait_ms: int = 0) -> None:
        """Waits, then lets everything happen that is due."""
        self.network.now_ms += wait_ms
        for _ in range(8):
            for site in self.network.sites.values():
                site.go_on()
            self.network.arrive()

    def say(self, kind: str = "MESSAGE", *, by_target: bool = False, **fields: Any) -> None:
        """One side makes a statement, and everything happens that follows."""
        site, service, far, database = (
            (self.north, ORDERS, STOCK, "N") if not by_target else (self.south, STOCK, ORDERS, "S")
        )
        site.say(Envelope(kind, C, not by_target, service, database, far, **fields))  # type: ignore[arg-type]
        self.go_on()

    def cut(self, *pairs: tuple[str, str]) -> None:
        self.network.cuts = set(pairs)

    def states(self) -> tuple[str, str]:
        """Returns the states of the initiator in North and of the target in South."""
        return state(self.north, 0), state(self.south, 1)


def state(site: Site, side: int) -> str:
    endpoint = site.shard.conversation(C).endpoints[side] if C in site.shard.conversations else None
    return State.ABSENT.name if endpoint is None else endpoint.state.name


def to(service: str, address: str, database: str = "msdb", **more: Any) -> CreateRoute:
    return CreateRoute(database, f"to {service}", address, service_name=service, **more)


def got(site: Site) -> list[str]:
    """Returns the deliveries to the queues of an instance: numbers of messages, and kinds of other deliveries."""
    return [short(delivery) for delivery, _ in site.delivered]


def short(delivery: Deliver) -> str:
    code = "" if delivery.error_code is None else f" {delivery.error_code}"
    return str(delivery.sequence) if delivery.kind == Kind.MESSAGE else Kind(delivery.kind).name + code


def forwarding(site: Site, *, is_on: bool = True) -> None:
    site.shard.instance = Instance(site.shard.instance.addresses, is_on)


def from_north(kind: str, sequence: int | None, name: str = C, **fields: Any) -> Envelope:
    """Returns a message of the initiator in North, as it comes to South."""
    values = {"from_broker_instance": IN_NORTH, "message_sequence_number": sequence, "hops_remaining": 10}
    return Envelope(kind, name, True, ORDERS, "N", STOCK, **values | fields)  # type: ignore[arg-type]


def receive(site: Site, *envelopes: Envelope) -> None:
    """Lets an instance take messages in one batch, and carry out its decisions."""
    for envelope in envelopes:
        site.receive(envelope)
    site.go_on()
