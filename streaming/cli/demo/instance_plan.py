"""The instances of the demo of instances, and the services in them."""

import uuid
from dataclasses import dataclass

from streaming.kafka.clients import Cluster
from streaming.wire.service_commands import AlterDatabase, CreateDatabase, CreateRoute, CreateService, ServiceCommand
from streaming.wire.topics import Topics

SHOP, STOCK, AUDITS = "shop", "stock", "audits"
ORDERS, RESERVE, AUDIT = "//shop/orders", "//stock/reserve", "//stock/audit"

# Queue -> the place that has it.
QUEUES = {"answers": "north", "reserve": "south", "audit": "south", "mirror": "west"}
# The broker instance of the stock's database, which is the same in the mirror.
_STOCK_INSTANCE = str(uuid.uuid4())


@dataclass(frozen=True)
class Place:
    """An instance of the demo.

    Attributes:
        name: Its name.
        cluster: Its Kafka cluster.
        prefix: Its topic prefix.
        options: Options of its router.
    """

    name: str
    cluster: Cluster
    prefix: str = ""
    options: tuple[str, ...] = ()

    @property
    def topics(self) -> Topics:
        """Returns its topics."""
        return Topics(self.prefix)

    @property
    def queues(self) -> list[str]:
        """Returns its queues."""
        return [queue for queue, place in QUEUES.items() if place == self.name]


def definitions(north: str, south: str, direct_south: str, west: str) -> dict[str, list[ServiceCommand]]:
    """Returns the definitions of each place, by its name.

    Args:
        north: The address of north, over the link.
        south: The address of south, over the link.
        direct_south: The address of south for west, which does not use the link.
        west: The address of west.
    """
    return {
        "north": [
            CreateDatabase(SHOP, str(uuid.uuid4())),
            CreateService(SHOP, ORDERS, "answers"),
            CreateRoute(SHOP, "ToStock", south, RESERVE, _STOCK_INSTANCE, mirror_address=west),
            CreateRoute(SHOP, "ToAudit", west, service_name=AUDIT),
        ],
        "south": [
            CreateDatabase(STOCK, _STOCK_INSTANCE),
            CreateDatabase(AUDITS, str(uuid.uuid4())),
            CreateService(STOCK, RESERVE, "reserve"),
            CreateService(AUDITS, AUDIT, "audit"),
            *(CreateRoute(each, "ToShop", north, service_name=ORDERS) for each in (STOCK, AUDITS)),
        ],
        "west": [
            CreateDatabase(STOCK, _STOCK_INSTANCE, mirroring_role="MIRROR"),
            CreateService(STOCK, RESERVE, "mirror"),
            CreateRoute(STOCK, "ToShop", north, service_name=ORDERS),
            CreateRoute("msdb", "ToAudit", direct_south, service_name=AUDIT),
        ],
    }


def failover() -> dict[str, ServiceCommand]:
    """Returns the commands by which west's copy of the stock takes over, by the place."""
    return {
        "south": AlterDatabase(STOCK, mirroring_role="MIRROR"),
        "west": AlterDatabase(STOCK, mirroring_role="PRINCIPAL"),
    }
