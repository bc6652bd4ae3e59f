"""Two instances that converse, with a router and a transport each, and a peer that writes records of its own."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from streaming.core.conversations.decisions import Drop
from streaming.system.processes import own_environment
from streaming.wire.envelope import Envelope, encode_envelope
from streaming.wire.service_decisions import decode_decisions
from tests.support.command_lines import ROOT
from tests.support.monitors import UNHURRIED
from tests.support.service_scene import ORDERS, RESERVE, ServiceScene
from tests.support.spark_application import SparkApplication

DEADLINE_S = 60.0
PEER = "//peer"
# The periodic tasks of the programs, with the notifications on which they are done.
TRANSPORT_TASKS = {
    "CONNECT_TO_DESTINATIONS": 2,
    "CLOSE_IDLE_CONNECTIONS": 5,
    "DELETE_UNFORWARDED_MESSAGES": 5,
    "RESUME_DELETIONS": 5,
}
ROUTER_TASKS = {
    "DELETE_STALE_MESSAGES": 1,
    "RECLASSIFY_CONVERSATIONS": 2,
    "RESTART_BROKERS": 5,
    "ASK_FOR_ROUTES": 5,
    "RESUME_CLEAN_UP": 5,
}


class Pair:
    """The two instances.

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

    @contextmanager
    def running(self) -> Iterator[None]:
        """Runs routers and transports of both instances. Only South forwards messages of other instances."""
        self.define()
        north, south = (
            self.north.program("router", *UNHURRIED),
            self.south.program("router", *UNHURRIED, "--message-forwarding", "ON"),
        )
        with self.north.running(north, self.transports[0]), self.south.running(south, self.transports[1]):
            yield

    @staticmethod
    def route(scene: ServiceScene, database: str, name: str, service: str, address: str, *options: str) -> None:
        """Creates a route."""
        place = ["--database", database, "--service", service, "--address", address]
        scene.shell.run("route", "create", name, *place, *options)


@contextmanager
def running_pair(bootstrap_servers: str, spark: SparkApplication, folder: Path) -> Iterator[Pair]:
    """Runs two instances on one broker, with their routers in one Spark application."""
    scenes = []
    for name in ("north", "south"):
        (folder / name).mkdir()
        scenes.append(ServiceScene(bootstrap_servers, folder / name, application=spark))
    pair = Pair(*scenes)
    with pair.running():
        yield pair


def address_of(scene: ServiceScene) -> str:
    """Returns the address of an instance."""
    return f"tcp://{scene.bootstrap_servers}/{scene.prefix}"


def states(scene: ServiceScene, name: str) -> set[str]:
    rows = scene.rows(scene.topics.service_conversations).items()
    return {row["state"] for key, row in rows if key.startswith(name)}


def held(scene: ServiceScene, *conversation_ids: str) -> list[dict[str, Any]]:
    """Returns the rows of service-transmissions of some conversations."""
    rows = scene.rows(scene.topics.service_transmissions).values()
    return [row for row in rows if row["conversation_id"] in conversation_ids]


def drops(scene: ServiceScene, conversation_id: str) -> list[int | None]:
    """Returns the numbers with which an instance has dropped records of a conversation, in order."""
    records = [decode_decisions(each.value()).batch(0) for each in scene.read(scene.topics.service_decisions, 0)]
    decisions = [decision for record in records for decision in record.decisions]
    return [each.number for each in decisions if isinstance(each, Drop) and each.conversation_id == conversation_id]


def incoming(scene: ServiceScene, conversation_id: str) -> list[Message]:
    """Returns the records that other instances have sent to a conversation."""
    records = scene.read(scene.topics.service_incoming, 0)
    return [each for each in records if each.key() == conversation_id.encode()]


def receive(scene: ServiceScene, kind: str, conversation_id: str, sequence: int | None, **more: Any) -> None:
    """Writes a record into service-incoming, as PEER does in a third instance."""
    fields: dict[str, Any] = {
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
    envelope = encode_envelope(Envelope(**fields | more))
    scene.produce(scene.topics.service_incoming, b"of a peer", conversation_id.encode(), [("envelope", envelope)])
    scene.flush()


def listed(scene: ServiceScene, command: str, program: str = "transport") -> list[dict[str, Any]]:
    """Returns the output of a command about the running program. Killed programs have older records."""
    found = [json.loads(line) for line in scene.shell.run(command, "--json").splitlines()]
    rows = [row for row in found if row.get("program", program) == program]
    newest = max(row["update_time"] for row in rows)
    return [row for row in rows if row["update_time"] == newest]


def limit_incoming(scene: ServiceScene, max_bytes: int) -> None:
    """Sets the largest record that an instance takes from other instances."""
    entry = ConfigEntry("max.message.bytes", str(max_bytes), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", scene.topics.service_incoming, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": scene.bootstrap_servers})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def tell_routes(scene: ServiceScene, questions: str, addresses: Mapping[str, str]) -> None:
    """Runs the example of a configuration service until it has answered all questions.

    Args:
        scene: The instance that asks.
        questions: The queue of its configuration service.
        addresses: Service -> address.
    """
    file = scene.folder / "addresses.json"
    file.write_text(json.dumps(addresses))
    subprocess.run(
        [sys.executable, str(ROOT / "examples/services/configuration.py"), str(file), questions],
        env={
            **own_environment(),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "QUEUE_ACTIVATION_BOOTSTRAP_SERVERS": scene.bootstrap_servers,
            "QUEUE_ACTIVATION_TOPIC_PREFIX": scene.prefix,
        },
        timeout=DEADLINE_S,
        check=True,
    )
