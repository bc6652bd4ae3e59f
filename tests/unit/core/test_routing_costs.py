"""Thousands of equal destinations: decisions are those of a plain choice, and cost one hash each."""

from collections.abc import Callable
from random import Random

import pytest

from streaming.core.routing.databases import Database, Service
from streaming.core.routing.definition_rules import RefusedDefinitionError
from streaming.core.routing.definitions import Definitions
from streaming.core.routing.resolution import resolve
from streaming.core.routing.route_order import in_order
from streaming.core.routing.routing_table import Route, RouteGroup
from tests.support.calls import calls_of
from tests.support.plain_choosing import order_of, pick
from tests.support.routing_scene import INSTANCE, STOCK, A, own, route, scene, service

SERVICES = (None, STOCK, "Parts")
INSTANCES = (None, "i0", "i1", "i2")
HOSTS = ("tcp://host0:1", "TCP://Host0:01/", "tcp://host1:1", "tcp://host2:1", "tcp://host3:1")
CONVERSATIONS = [f"c{number}" for number in range(6)]
MANY = 9_000
# A copy of a begun hash, an update, the digest, its place in a list; and some to spare, though not for a second hash.
HASH_CALLS = 5


def random_route(random: Random, name: str) -> Route:
    to_service = random.choice(SERVICES)
    instance = None if to_service is None else random.choice(INSTANCES)
    address = random.choice([*HOSTS, *HOSTS, "LOCAL", *(["TRANSPORT"] if to_service is None else [])])
    mirror = "tcp://mirror:1" if instance and address in HOSTS and random.random() < 0.3 else None
    expires_ms = random.choice((None, None, random.randrange(1, 400)))
    return route(name, to_service, address, instance=instance, mirror=mirror, expires_ms=expires_ms)


def change(random: Random, definitions: Definitions) -> None:
    """Makes a random statement, which may be refused, or lets time pass."""
    name = f"r{random.randrange(12)}"
    database = f"D{random.randrange(4)}"
    new = random_route(random, name)
    statements: list[Callable[[], None]] = [
        lambda: definitions.create_route(new),
        lambda: definitions.create_route(new),
        lambda: definitions.drop_route(A, name),
        lambda: definitions.alter_route(A, name, address=random.choice(HOSTS), expires_at_ms=random.randrange(1, 400)),
        lambda: definitions.advance(definitions.now_ms + 5),
        lambda: definitions.create_database(Database(database, f"in {database}"), with_default_route=False),
        lambda: definitions.create_service(Service(STOCK, database, "queue")),
        lambda: definitions.alter_service(database, STOCK, f"queue-{random.random()}"),
        lambda: definitions.drop_service(database, STOCK),
        lambda: definitions.drop_database(database),
        lambda: definitions.alter_database(database, is_broker_enabled=random.random() < 0.5),
    ]
    try:
        random.choice(statements)()
    except RefusedDefinitionError:
        return


def expected_groups(definitions: Definitions, service_name: str | None) -> dict[str | None, list[Route]]:
    """Returns the routes for a service that have not expired, by broker instance."""
    table = definitions.tables[A]
    found: dict[str | None, list[Route]] = {}
    for name in sorted(table.live):
        each = table.routes[name]
        if each.service_name == service_name:
            found.setdefault(each.broker_instance, []).append(each)
    return found


def check(definitions: Definitions, conversation_id: str) -> None:
    table, conversation = definitions.tables[A], own(conversation_id=conversation_id)
    for name in SERVICES:
        groups = expected_groups(definitions, name)
        plain = table.for_any() if name is None else table.for_service(name)
        assert [*in_order(plain, conversation)] == order_of(groups.pop(None, []), conversation_id)
        if name is None or not groups:
            continue
        picked = groups[pick(conversation_id, name, [str(each) for each in groups])]
        some = table.for_some_instance(name, conversation_id)
        assert some.routes == picked
        assert [*in_order(some, conversation)] == order_of(picked, conversation_id)
    here = {each.database: each for each in definitions.services_here(STOCK)}
    if here:
        assert definitions.some_service_here(STOCK, conversation_id) == here[pick(conversation_id, STOCK, [*here])]


@pytest.mark.parametrize("seed", range(20))
def test_choices_are_those_of_a_plain_choice_while_definitions_change(seed: int) -> None:
    random = Random(seed)  # noqa: S311  (no secret)
    definitions = scene()
    for _ in range(150):
        change(random, definitions)
        for conversation_id in random.sample(CONVERSATIONS, 2) * 2:
            check(definitions, conversation_id)


def message_calls(work: Callable[[str], object]) -> int:
    """Returns the calls for one message, which the router decides about twice, once all is prepared."""
    work("an earlier one")

    def message() -> None:
        work("c")
        work("c")

    return calls_of(message)


def test_a_message_costs_one_hash_for_each_of_9000_wildcard_routes() -> None:
    definitions = scene(*(route(f"r{number:05}", None, f"tcp://h{number}:9092") for number in range(MANY)))
    assert message_calls(lambda name: decide_once(definitions, name)) < HASH_CALLS * MANY


def test_a_message_costs_one_hash_for_each_of_9000_broker_instances() -> None:
    many = (route(f"r{number:05}", STOCK, "tcp://h:9092", instance=f"i{number}") for number in range(MANY))
    definitions = scene(*many)
    assert message_calls(lambda name: decide_once(definitions, name)) < HASH_CALLS * MANY


def test_a_message_costs_one_hash_for_each_of_1000_databases_with_the_service() -> None:
    definitions = scene(route("r", None))
    for name in [f"d{number}" for number in range(1_000)]:
        definitions.create_database(Database(name, None), with_default_route=False)
        definitions.create_service(service(name))

    assert message_calls(lambda name: decide_once(definitions, name)) < HASH_CALLS * 1_000


def decide_once(definitions: Definitions, conversation_id: str) -> object:
    return resolve(definitions, INSTANCE, own(conversation_id=conversation_id))


def test_the_choice_of_the_first_does_not_order_the_others() -> None:
    group = RouteGroup([route(f"r{number}", STOCK, f"tcp://h{number}:1") for number in range(5)])
    one, other = own(conversation_id="one"), own(conversation_id="other")
    firsts = [next(in_order(group, each)) for each in (one, other, one, other)]

    assert firsts == [order_of(group.routes, each)[0] for each in ("one", "other", "one", "other")]
