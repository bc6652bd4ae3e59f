"""Two instances that converse, with a router and a transport each, and a peer that writes records of its own."""

import uuid
from typing import Any

from streaming.core.conversations.decisions import Drop
from streaming.wire.envelope import encode_envelope
from streaming.wire.service_decisions import decode_decisions
from tests.support.service_scene import ORDERS, RESERVE, ServiceScene

DEADLINE_S = 60.0
PEER = "//peer"


class Pair:
    """The instances.

    Attributes:
        north: Has the database shop with the service ORDERS.
        south: Has the database stock with the service RESERVE.
    """

    def __init__(self, north: ServiceScene, south: ServiceScene) -> None:
        self.north = north
        self.south = south
        self.transports = [each.program("transport", "--notification-interval", "200ms") for each in (north, south)]

    def define(self) -> None:
        """Creates the services, and the routes in both directions."""
        places = ((self.north, self.south, "shop", ORDERS, RESERVE), (self.south, self.north, "stock", RESERVE, ORDERS))
        for scene, far, database, service, far_service in places:
            scene.shell.run("database", "create", database)
            queue = scene.orders if service == ORDERS else scene.reserve
            scene.shell.run("service", "create", service, "--database", database, "--queue", queue)
            self.route(scene, database, "far", far_service, address_of(far))

    @staticmethod
    def route(scene: ServiceScene, database: str, name: str, service: str, address: str, *options: str) -> None:
        """Creates a route."""
        place = ["--database", database, "--service", service, "--address", address]
        scene.shell.run("route", "create", name, *place, *options)


def address_of(scene: ServiceScene) -> str:
    """Returns the address of an instance."""
    return f"tcp://{scene.bootstrap_servers}/{scene.prefix}"


def states(scene: ServiceScene, name: str) -> set[str]:
    rows = scene.rows(scene.topics.service_conversations).items()
    return {row["state"] for key, row in rows if key.startswith(name)}


def held(scene: ServiceScene) -> list[dict[str, Any]]:
    return [*scene.rows(scene.topics.service_transmissions).values()]


def drops(scene: ServiceScene, conversation_id: str) -> list[int | None]:
    """Returns the numbers with which an instance has dropped records of a conversation, in order."""
    records = [decode_decisions(each.value()) for each in scene.read(scene.topics.service_decisions, 0)]
    decisions = [fields.decision() for record in records for fields in record.decisions]
    return [each.number for each in decisions if isinstance(each, Drop) and each.conversation_id == conversation_id]


def receive(scene: ServiceScene, kind: str, conversation_id: str, sequence: int | None, **more: Any) -> None:
    """Writes a record into service-incoming, as PEER does in a third instance."""
    fields = {
        "type": kind,
        "conversation_id": conversation_id,
        "is_initiator": True,
        "from_service": PEER,
        "from_database": "peer",
        "from_broker_instance": str(uuid.uuid4()),
        "to_service": RESERVE,
        "begin": sequence == 0,
        "message_sequence_number": sequence,
        "first_unacknowledged": 0,
        "receive_sequence_number": 0,
        "hops_remaining": 10,
    }
    envelope = encode_envelope(fields | more)
    scene.produce(scene.topics.service_incoming, b"of a peer", conversation_id.encode(), [("envelope", envelope)])
    scene.flush()
