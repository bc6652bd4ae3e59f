"""Random programs and administrators of an instance: right and wrong statements, and commands that break and repair."""

from random import Random
from typing import Any

from confluent_kafka import murmur2

from streaming.core.conversations.conversation import INITIATOR, TARGET, Endpoint
from streaming.core.conversations.endpoint_states import State
from streaming.core.routing.routing_table import BROKER_CONFIGURATION
from streaming.wire.envelope import Envelope
from streaming.wire.service_commands import (
    AlterDatabase,
    AlterRoute,
    AlterService,
    CreateDatabase,
    CreateRoute,
    CreateService,
    DropDatabase,
    DropRoute,
    DropService,
    ServiceCommand,
)
from tests.support.conversation_truth import ENDINGS
from tests.support.conversation_world import World
from tests.support.routing_scene import HERE

DATABASES = ("A", "B", "D")
SERVICES = ("Orders", "Stock", "Bills")
INSTANCES = {name: f"{number}0000000-0000-4000-8000-000000000000" for number, name in enumerate(DATABASES)}
UNKNOWN_INSTANCE = "90000000-0000-4000-8000-000000000000"
ADDRESSES = ("LOCAL", "LOCAL", "tcp://elsewhere:1", HERE, "TRANSPORT")
ROUTES = ("AutoCreatedLocal", "r1", "r2", "r3")
# The conversations that programs still speak in.
MAX_SPOKEN = 12

KINDS = {"MESSAGE": 75, "END": 7, "ERROR": 2, "CLEANUP": 2, "TIMER": 14}
# The probability that programs say no more in a conversation that one of them has ended.
_LEAVES = 0.5


class Programs:
    """The programs. They know only the facts about conversations that real programs know."""

    def __init__(self, random: Random, world: World) -> None:
        self._random = random
        self._world = world
        self._conversations: list[dict[str, Any]] = []
        self._begun = 0

    def speak(self) -> None:
        """Makes one statement."""
        chance = self._random.random
        if not self._conversations or chance() < 0.12:
            self._begin()
            return
        known = self._random.choice(self._conversations)
        is_initiator = chance() < 0.55 or (self._endpoint(known, TARGET) is None and chance() < 0.9)
        endpoint = self._endpoint(known, INITIATOR if is_initiator else TARGET)
        has_ended = endpoint is not None and endpoint.state is not State.CO and chance() < 0.8
        fields = {
            "type": "END" if has_ended else self._kind(),
            "conversation_id": known["id"],
            "is_initiator": is_initiator,
            "from_service": known["services"][not is_initiator],
            "from_database": known["from"] if is_initiator or endpoint is None else endpoint.database,
            "to_service": known["services"][is_initiator],
        }
        if fields["type"] in ENDINGS and chance() < _LEAVES:
            self._conversations.remove(known)
        if chance() < 0.06:
            fields |= self._wrong()
        self._say(known["partition"], fields)

    def _begin(self) -> None:
        random = self._random
        if self._conversations and random.random() < 0.1:
            known = random.choice(self._conversations)  # a conversation that exists, or that was forgotten
        else:
            self._begun += 1
            name, partitions = f"c{self._begun}", len(self._world.log.partitions)
            known = {"id": name, "partition": murmur2(name.encode(), partitions)}
            self._conversations = [*self._conversations[1 - MAX_SPOKEN :], known]
            known["services"] = random.choice(SERVICES), random.choice(SERVICES)
            known["from"] = random.choice(("A", "A", "A", "B", "D"))
        fields = {
            "type": "MESSAGE" if random.random() < 0.9 else self._kind(),
            "conversation_id": known["id"],
            "is_initiator": True,
            "from_service": known["services"][0],
            "from_database": known["from"],
            "to_service": known["services"][1],
            "begin": True,
        }
        if random.random() < 0.15:
            fields["lifetime_s"] = random.choice((1, 20, 60, 300))
        if random.random() < 0.15:
            fields["to_broker_instance"] = random.choice((*INSTANCES.values(), UNKNOWN_INSTANCE))
        self._say(known["partition"], fields)

    def _kind(self) -> str:
        [kind] = self._random.choices([*KINDS], [*KINDS.values()])
        return kind

    def _wrong(self) -> dict[str, Any]:
        wrong: list[dict[str, Any]] = [
            {"conversation_id": "unknown"},
            {"from_service": "None"},
            {"from_database": "none"},
            {"to_service": "None"},
            {"begin": True},
            {"type": "TIMER"},
        ]
        return self._random.choice(wrong)

    def _endpoint(self, known: dict[str, Any], side: int) -> Endpoint | None:
        """Returns an endpoint, of which its program knows the state and the database."""
        shard = self._world.log.partitions[known["partition"]].shard
        return shard.conversation(known["id"]).endpoints[side] if known["id"] in shard.conversations else None

    def _say(self, partition: int, fields: dict[str, Any]) -> None:
        if fields["type"] == "TIMER" and self._random.random() < 0.9:
            fields["timer_ms"] = self._random.choice((0, 0, 0, 1_000, 60_000))
        if self._random.random() < 0.05:
            fields["conversation_group_id"] = self._random.choice("gh")
        self._world.say(partition, Envelope(**fields))


def first_commands(random: Random) -> list[ServiceCommand]:
    """Returns the commands that make an instance in which most messages have a destination.

    In most instances, a configuration service is asked for missing routes.
    """
    ask = [CreateRoute(name, "ask", "LOCAL", BROKER_CONFIGURATION) for name in ("A", "B")]
    return [
        *[CreateDatabase(name, INSTANCES[name]) for name in DATABASES[:2]],
        CreateService("A", "Orders", "orders"),
        CreateService("A", "Bills", "bills"),
        CreateService("B", "Stock", "stock"),
        CreateService("B", "Bills", "bills of B"),
        *[CreateService(name, BROKER_CONFIGURATION, "questions") for name in ("A", "B")],
        *(ask if random.random() < 0.7 else []),
    ]


def breaking_command(random: Random) -> ServiceCommand:
    """Returns a command that may make messages wait, end conversations, or move new conversations."""
    database, service, name = random.choice(DATABASES), random.choice(SERVICES), random.choice(ROUTES)
    kinds: dict[int, list[ServiceCommand]] = {
        6: [AlterDatabase(database, is_broker_enabled=False)],
        2: [
            AlterDatabase(database, mirroring_role="MIRROR"),
            AlterDatabase(database, broker_instance=random.choice([*INSTANCES.values()])),
            DropService(database, service),
            DropRoute("msdb", "AutoCreatedLocal"),
        ],
        1: [DropDatabase(database)],
        5: [AlterService(database, service, random.choice(("new", "stock", "orders"))), _route(random, database, name)],
        4: [DropRoute(database, name), AlterRoute(database, name, lifetime_s=random.choice((1, 10, 40)))],
        3: [AlterRoute(database, name, address=random.choice(ADDRESSES[:4])), _route(random, "msdb", name)],
    }
    chosen = random.choices([*kinds], [*kinds])[0]
    return random.choice(kinds[chosen])


def _route(random: Random, database: str, name: str) -> ServiceCommand:
    service = random.choice((None, *SERVICES, *SERVICES, BROKER_CONFIGURATION))
    instance = random.choice((None, None, *INSTANCES.values())) if service is not None else None
    lifetime_s = random.choice((None, 5, 20, 60))
    return CreateRoute(database, name, random.choice(ADDRESSES), service, instance, lifetime_s)


def last_commands() -> list[ServiceCommand]:
    """Returns the commands that drop the routes to the configuration services, and the routes that these have made."""
    names = ["ask", *(f"to {service}" for service in SERVICES)]
    return [DropRoute(database, name) for database in (*DATABASES, "msdb") for name in names]


def mending_commands() -> list[ServiceCommand]:
    """Returns the commands after which every service of every database is here, and every route leads to it."""
    # Two databases may have changed places, so first each gets a broker instance that no other one has.
    commands: list[ServiceCommand] = [AlterDatabase(each, broker_instance=f"of {each}") for each in DATABASES]
    for database in (*DATABASES, "msdb"):
        if database != "msdb":
            instance = INSTANCES[database]
            commands.append(CreateDatabase(database, instance))
            commands.append(AlterDatabase(database, instance, is_broker_enabled=True, mirroring_role="PRINCIPAL"))
            commands += [CreateService(database, service, f"{service} of {database}") for service in SERVICES]
        commands += [DropRoute(database, name) for name in ROUTES]
        commands.append(CreateRoute(database, "AutoCreatedLocal", "LOCAL"))
    return commands
