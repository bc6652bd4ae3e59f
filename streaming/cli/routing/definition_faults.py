"""Searches definitions for faults, as `ssbdiagnose` did for Service Broker."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice

from confluent_kafka.admin import AclOperation

from streaming.cli.routing.explained_routes import Origin
from streaming.core.numbers import plural
from streaming.core.routing.addresses import LOCAL
from streaming.core.routing.conversation import Outcome, RoutedMessage
from streaming.core.routing.databases import Service
from streaming.core.routing.definition_rules import RefusedDefinitionError, require_valid_route
from streaming.core.routing.definitions import MSDB, Definitions
from streaming.core.routing.resolution import NO_ROUTE, resolve
from streaming.core.routing.routing_table import Route
from streaming.core.times import iso_time
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system import hints, wall_clock
from streaming.system.ages import instant_utc
from streaming.wire.topics import Topics, topic_name_problem

# Databases that send, times services: some seconds.
_MAX_PAIRS = 200_000


@dataclass(frozen=True)
class Fault:
    """A fault of a definition, a program, a queue or held messages.

    Attributes:
        kind: The kind of fault.
        where: The thing that has the fault, such as a route, a queue or a program.
        problem: The fault, and advice.
    """

    kind: str
    where: str
    problem: str

    def as_text(self) -> str:
        """Returns the fault as a line for people."""
        return f"{self.kind}: {self.where}: {self.problem}"

    def as_json(self) -> str:
        """Returns the fault as one line of JSON."""
        return json.dumps(asdict(self))


def faults(
    source: Origin, kafka: Cluster | None, topics: Topics, open_conversations: Mapping[RoutedMessage, int]
) -> list[Fault]:
    """Returns all faults of the definitions as they are now.

    Args:
        source: The definitions.
        kafka: The cluster that must have the topics of queues; None: topics are not checked.
        topics: The names of our own topics.
        open_conversations: The conversations in which programs may still send, and their number.

    Raises:
        UserError: Kafka cannot be reached or refuses.
    """
    definitions = source.load()
    definitions.advance(wall_clock.now_ms())
    found = [
        *_disabled_brokers(definitions),
        *_msdb_without_routes(definitions),
        *_databases_without_routes(definitions),
        *_refused_routes(definitions),
        *_routes_to_nowhere(definitions),
        *_expired_routes_that_are_needed(source, definitions, open_conversations),
        *_replies_without_a_way(source, definitions),
    ]
    if kafka is not None:
        found += _services_without_topic(definitions, kafka, topics)
    return found


def _disabled_brokers(definitions: Definitions) -> Iterator[Fault]:
    names = {service.database for service in definitions.services()}
    for name in sorted(names):
        database = definitions.databases[name]
        if not database.is_broker_enabled:
            enable = hints.command("database", "alter", name, "--broker", "ON")
            problem = f"its services get no messages. Enable it: `{enable}`"
            yield Fault("broker disabled", f"database {name}", problem)


def _msdb_without_routes(definitions: Definitions) -> Iterator[Fault]:
    if not definitions.tables[MSDB].live:
        problem = (
            "messages from outside that name no broker instance here are DROPPED, and messages of this instance that "
            f"come back wait (9750). Create a route: {_create_route(MSDB)}"
        )
        yield Fault("no route", f"database {MSDB}", problem)


def _databases_without_routes(definitions: Definitions) -> Iterator[Fault]:
    names = {service.database for service in definitions.services()} - {MSDB}
    for name in sorted(names):
        if definitions.is_here(name) and not definitions.tables[name].live:
            problem = (
                f"all messages and replies that its services send wait ({NO_ROUTE}), also those to its own services. "
                f"Create a route: {_create_route(name)}"
            )
            yield Fault("no route", f"database {name}", problem)


def _create_route(database: str) -> str:
    command = hints.command("route", "create", "AutoCreatedLocal", "--database", database, "--address", "LOCAL")
    return f"`{command}`"


def without_topic(queue: str) -> str:
    """Returns the sentence about a service's queue without a topic, with advice."""
    return f"queue {queue} has no topic. Create it: `{hints.command('queue', 'create', queue)}`"


def _refused_routes(definitions: Definitions) -> Iterator[Fault]:
    for route in _routes(definitions):
        try:
            require_valid_route(route)
        except RefusedDefinitionError as error:
            yield Fault("invalid route", _name(route), error.reason_and_number)


def _routes_to_nowhere(definitions: Definitions) -> Iterator[Fault]:
    for route in _routes(definitions):
        service = route.service_name
        if route.address != LOCAL or service is None or route.name not in definitions.tables[route.database].live:
            continue
        if route.broker_instance is None:
            if not definitions.services_here(service):
                yield Fault("route to nowhere", _name(route), f"service {service} is in no database here (9796)")
            continue
        database = definitions.database_here(route.broker_instance)
        if database is None:
            yield Fault("route to nowhere", _name(route), f"broker instance {route.broker_instance} is not here (9795)")
        elif definitions.service(database, service) is None:
            problem = f"database {database}, which it names by its broker instance, has no service {service} (9796)"
            yield Fault("route to nowhere", _name(route), problem)


def _expired_routes_that_are_needed(
    source: Origin, definitions: Definitions, open_conversations: Mapping[RoutedMessage, int]
) -> Iterator[Fault]:
    for route in _routes(definitions):
        if route.name in definitions.tables[route.database].live or route.service_name is None:
            continue
        if not definitions.is_here(route.database):
            continue  # its messages wait for another reason
        asked = RoutedMessage("diagnosed", route.service_name, route.broker_instance, True, route.database)
        needed_by = {each: count for each, count in open_conversations.items() if _would_match(route, each)}
        decisions = {each: resolve(definitions, source.instance, each) for each in (asked, *needed_by)}
        numbers = [each.number for each in decisions.values() if each.outcome is Outcome.DELAYED]
        if numbers:
            count = sum(found for each, found in needed_by.items() if decisions[each].outcome is Outcome.DELAYED)
            of_open = f" of {plural(count, 'open conversation')}" if count else ""
            problem = (
                f"expired at {instant_utc(iso_time(route.expires_at_ms or 0))}, and without it messages{of_open} to "
                f"{route.service_name} wait ({numbers[0]}). Give it a new --lifetime, or create another route"
            )
            yield Fault("expired route", _name(route), problem)


def _would_match(route: Route, conversation: RoutedMessage) -> bool:
    """Returns whether a route would match a message of a conversation if it had not expired."""
    is_for = conversation.from_database == route.database and conversation.to_service == route.service_name
    return is_for and route.broker_instance in (None, conversation.to_broker_instance)


def _replies_without_a_way(source: Origin, definitions: Definitions) -> Iterator[Fault]:
    """Yields services that a database can reach, but whose replies do not get back. Checks _MAX_PAIRS pairs at most."""
    services = sorted(definitions.services(), key=lambda each: (each.database, each.name))
    senders: dict[str, Service] = {}
    for service in services:
        senders.setdefault(service.database, service)
    pairs = ((sender, target) for sender in senders.values() for target in services)
    for sender, target in islice(pairs, _MAX_PAIRS):
        if sender.database == target.database:
            continue
        there = RoutedMessage("diagnosed", target.name, None, True, sender.database)
        if resolve(definitions, source.instance, there).service != target:
            continue
        instance = definitions.databases[sender.database].broker_instance
        reply = RoutedMessage("diagnosed", sender.name, instance, False, target.database)
        back = resolve(definitions, source.instance, reply)
        if back.service != sender:
            problem = (
                f"messages from service {sender.name} of database {sender.database} arrive, but replies to it do not "
                f"get back ({back.number or back.address}). Create a route for {sender.name} in {target.database}"
            )
            yield Fault("one-way route", f"service {target.name} of database {target.database}", problem)


def _services_without_topic(definitions: Definitions, kafka: Cluster, topics: Topics) -> list[Fault]:
    services = sorted(definitions.services(), key=lambda each: (each.database, each.name))
    valid = {each.queue for each in services if topic_name_problem(each.queue, topics) is None}
    existing = Admin(kafka).find_topics(dict.fromkeys(valid, (AclOperation.DESCRIBE,))) if valid else {}
    found = []
    for service in services:
        if service.queue not in existing:
            where = f"service {service.name} of database {service.database}"
            found.append(Fault("no topic", where, without_topic(service.queue)))
    return found


def _routes(definitions: Definitions) -> Iterator[Route]:
    for _, table in sorted(definitions.tables.items()):
        yield from (table.routes[name] for name in sorted(table.routes))


def _name(route: Route) -> str:
    return f"route {route.name} of database {route.database}"
