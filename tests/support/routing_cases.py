"""Random definitions and conversations for tests of routing: few names, so that routes match, tie and fail often.

The weights are tuned: each outcome, each number and each rule is what the oracle allows in over 1 % of the cases.
"""

from random import Random
from typing import Any

from tests.support.routing_oracle import CONFIGURATION_SERVICE, network_address

Record = dict[str, Any]

STOCK = "Stock"
# TRANSPORT sends the first name to another instance, and the second to this one if OWN_ADDRESS is among its addresses.
SERVICES = (STOCK, "tcp://h1:4022/Stock", "tcp://H0:4022/p/Stock", CONFIGURATION_SERVICE)
# Names that no service has: with other case, without a port.
STRANGERS = ("stock", "tcp://h1/Stock", "TCP://h1:4022/stock")

BROKER_INSTANCES = tuple(f"{digit * 8}-0000-4000-8000-000000000000" for digit in "123")
MSDB_BROKER_INSTANCE = "00000000-0000-4000-8000-000000000000"

OWN_ADDRESS = "tcp://h0:4022"
OWN_ADDRESS_WITH_PREFIX = "TCP://h0:4022/p"
# Each instance has one or two of its own addresses. To an instance with one, the other is an address elsewhere.
ADDRESSES = (
    *("tcp://h0:4022", "tcp://H0:4022", "tcp://h0:4022/p", "tcp://H0:4022/p", "tcp://h0:4022/P"),
    *("tcp://h1:4022", "TCP://H1:4022", "tcp://h1:4023"),
)

NOW = "2026-01-01T12:00:00Z"
BEFORE = "2026-01-01T11:59:59.999Z"
AFTER = "2026-01-01T12:00:00.001Z"


def random_definitions(rng: Random) -> Record:
    """Returns the content of a file for `route explain --definitions` that has nothing that the design refuses."""
    databases = _databases(rng)
    names = [database["name"] for database in databases]
    return {
        "instance": {
            "server_name": "here",
            "addresses": rng.choice(
                [[OWN_ADDRESS], [OWN_ADDRESS_WITH_PREFIX], *[[OWN_ADDRESS, OWN_ADDRESS_WITH_PREFIX]] * 2]
            ),
            "message_forwarding": rng.choice(["ON", "OFF"]),
        },
        "databases": databases,
        "services": [
            {"name": service, "database": name, "queue": f"{name}-queue-{number}"}
            for name in names
            for number, service in enumerate(SERVICES)
            if rng.random() < 0.4
        ],
        "routes": [route for name in names for route in _routes(rng, name)],
    }


def random_case(rng: Random, definitions: Record) -> Record:
    """Returns one element of a file for `route explain --cases`."""
    conversation: Record = {
        "conversation_id": f"{rng.randrange(16**8):08x}-0000-4000-8000-000000000000",
        "to_service": _any_service(rng) if rng.random() < 0.95 else rng.choice(STRANGERS),
        "to_broker_instance": rng.choice([*BROKER_INSTANCES * 2, MSDB_BROKER_INSTANCE])
        if rng.random() < 0.45
        else None,
        "is_initiator": rng.random() < 0.65,
    }
    if rng.random() < 0.4:
        conversation["incoming"] = True
    else:
        conversation["from_database"] = rng.choice(definitions["databases"])["name"]
    at = rng.choice([BEFORE, NOW, NOW, AFTER])
    return {"name": f"case {conversation['conversation_id'][:8]}", "at": at, "conversation": conversation}


def random_question(rng: Random) -> str:
    """Returns the state of the question to the configuration service about the conversation's service."""
    return rng.choices(["NOT_ASKED", "PENDING", "ANSWERED"], weights=[6, 2, 3])[0]


def random_semantics(rng: Random) -> str:
    """Returns how rule 4 is read."""
    return rng.choice(["observed", "observed", "literal"])


def _any_service(rng: Random) -> str:
    return rng.choices(SERVICES, weights=[5, 2, 2, 1])[0]


def _databases(rng: Random) -> list[Record]:
    """Returns msdb, almost always, and others: 2 to 4, whose broker instances are unique among enabled databases."""
    databases: list[Record] = []
    names = ["msdb", *("abc"[: rng.randint(1, 3)])]
    if len(names) > 2 and rng.random() < 0.05:
        names.remove("msdb")
    for name in names:
        common = name == "msdb"
        enabled = rng.random() < (0.97 if common else 0.88)
        taken = {database["broker_instance"] for database in databases if database["is_broker_enabled"]}
        free = [instance for instance in BROKER_INSTANCES if not enabled or instance not in taken]
        databases.append(
            {
                "name": name,
                "broker_instance": MSDB_BROKER_INSTANCE if common else rng.choice(free),
                "is_broker_enabled": enabled,
                "mirroring_role": rng.choice([None, "PRINCIPAL"])
                if rng.random() < (0.98 if common else 0.9)
                else "MIRROR",
            }
        )
    return databases


def _routes(rng: Random, database: str) -> list[Record]:
    """Returns a routing table of 0 to 8 routes, some of them copies of others under another name."""
    routes: list[Record] = []
    size = rng.randint(0, 8)
    if size and rng.random() < 0.4:
        routes.append(_route(None, None, "LOCAL", None) | {"name": "AutoCreatedLocal"})
    while len(routes) < size:
        if routes and rng.random() < 0.15:
            copy = rng.choice(routes)
            routes.append(copy | {"name": f"{database}-{len(routes)}", "address": _spelt(rng, copy["address"])})
            continue
        service = None if rng.random() < 0.25 else _any_service(rng)
        broker_instance = None if service is None or rng.random() < 0.45 else rng.choice(BROKER_INSTANCES)
        address = rng.choices(["LOCAL", "TRANSPORT", rng.choice(ADDRESSES)], weights=[5, 6, 8])[0]
        mirror = rng.choice(ADDRESSES) if rng.random() < 0.35 else None
        if not _refused(service, broker_instance, address, mirror):
            routes.append(_route(service, broker_instance, address, mirror) | {"name": f"{database}-{len(routes)}"})
    rng.shuffle(routes)
    return [route | {"database": database, "expires_at": _expiry(rng)} for route in routes]


def _refused(service: str | None, broker_instance: str | None, address: str, mirror: str | None) -> bool:
    """Returns true for a route that the design refuses."""
    local_or_transport = address in {"LOCAL", "TRANSPORT"}
    return (
        (mirror is not None and (broker_instance is None or local_or_transport))  # 9743
        or (address == "TRANSPORT" and service is not None)  # 9745
        or (mirror is not None and network_address(mirror) == network_address(address))  # 9747
        or (broker_instance is not None and service is None)
    )


def _route(service: str | None, broker_instance: str | None, address: str, mirror: str | None) -> Record:
    return {
        "service_name": service,
        "broker_instance": broker_instance,
        "address": address,
        "mirror_address": mirror,
    }


def _expiry(rng: Random) -> str | None:
    return rng.choice([BEFORE, NOW, AFTER]) if rng.random() < 0.25 else None


def _spelt(rng: Random, address: str) -> str:
    """Returns the address, sometimes in another spelling of the same."""
    return address.replace("tcp://h", "TCP://H") if rng.random() < 0.3 else address
