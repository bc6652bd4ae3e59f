"""The instances of the demo of instances, and their services. The shop is the same as in the demo of services."""

import uuid
from dataclasses import dataclass

from streaming.cli.demo.service_plan import ORDERS, ROUTE, SHOP, STOCK
from streaming.kafka.clients import Cluster
from streaming.wire.service_commands import AlterDatabase, CreateDatabase, CreateRoute, CreateService, ServiceCommand
from streaming.wire.topics import Topics

# The databases of the stock and of the audits, and the service of the audits.
_STOCK, _AUDITS = "stock", "audits"
AUDIT = "//stock/audit"

# Queue -> the name of the instance that has it.
QUEUES = {ORDERS.queue: "north", "reserve": "south", "audit": "south", "mirror": "west"}
# The broker instance of the stock's database, which is the same in the mirror.
_STOCK_INSTANCE = str(uuid.uuid4())


@dataclass(frozen=True)
class Place:
    """An instance of the demo.

    Attributes:
        name: The name of the instance.
        cluster: The Kafka cluster of the instance.
        prefix: The topic prefix of the instance.
        options: Options of the router.
    """

    name: str
    cluster: Cluster
    prefix: str = ""
    options: tuple[str, ...] = ()

    @property
    def topics(self) -> Topics:
        """Returns the topics of the instance."""
        return Topics(self.prefix)

    @property
    def queues(self) -> list[str]:
        """Returns the queues of the instance."""
        return queues_of(self.name)


def queues_of(*places: str) -> list[str]:
    """Returns the queues of the instances with these names."""
    return [queue for queue, place in QUEUES.items() if place in places]


def definitions(north: str, south: str, direct_south: str, west: str) -> dict[str, list[ServiceCommand]]:
    """Returns the definitions of each instance, by its name.

    Args:
        north: The address of north, over the link.
        south: The address of south, over the link.
        direct_south: The address of south for west, which does not use the link.
        west: The address of west.
    """
    return {
        "north": [
            CreateDatabase(SHOP, str(uuid.uuid4())),
            CreateService(SHOP, ORDERS.name, ORDERS.queue),
            CreateRoute(SHOP, ROUTE, south, STOCK, _STOCK_INSTANCE, mirror_address=west),
            CreateRoute(SHOP, "ToAudit", west, service_name=AUDIT),
        ],
        "south": [
            CreateDatabase(_STOCK, _STOCK_INSTANCE),
            CreateDatabase(_AUDITS, str(uuid.uuid4())),
            CreateService(_STOCK, STOCK, "reserve"),
            CreateService(_AUDITS, AUDIT, "audit"),
            *(CreateRoute(each, "ToShop", north, service_name=ORDERS.name) for each in (_STOCK, _AUDITS)),
        ],
        "west": [
            CreateDatabase(_STOCK, _STOCK_INSTANCE, mirroring_role="MIRROR"),
            CreateService(_STOCK, STOCK, "mirror"),
            CreateRoute(_STOCK, "ToShop", north, service_name=ORDERS.name),
            CreateRoute("msdb", "ToAudit", direct_south, service_name=AUDIT),
        ],
    }


def failover() -> dict[str, ServiceCommand]:
    """Returns the commands by which west's copy of the stock takes over, by the instance's name."""
    return {
        "south": AlterDatabase(_STOCK, mirroring_role="MIRROR"),
        "west": AlterDatabase(_STOCK, mirroring_role="PRINCIPAL"),
    }
