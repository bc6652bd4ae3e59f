"""Measures routing decisions per second on one core, for 10, 1,000 and 10,000 routes, and the loading of the routes.

.venv/bin/python benchmarks/routing.py [--decisions 200000] [--turns 3]

A third of the conversations name a service with a route of its own, a third may name a broker instance too, and a third
name a service that only the wildcard route LOCAL matches.
"""

import argparse
import statistics
import time

from machine import machine

from streaming.core.routing.conversation import Instance, Outcome, RoutedMessage
from streaming.core.routing.databases import Database, Service
from streaming.core.routing.definitions import Definitions
from streaming.core.routing.resolution import resolve
from streaming.core.routing.routing_table import Route

INSTANCE = Instance(frozenset({"tcp://here:4022"}))
ROUTES = (10, 1_000, 9_990)  # with databases and services 10,000 definitions, the limit


def definitions_with(routes: int) -> Definitions:
    """Returns a database with so many routes: a wildcard, and one for each of as many services."""
    definitions = Definitions.of_new_instance()
    definitions.create_database(Database("Sales", "sales"))
    definitions.create_service(Service("//Local", "Sales", "local"))
    for number in range(routes - 1):
        instance = f"broker-{number}" if number % 2 else None
        address = f"tcp://host-{number}:4022"
        definitions.create_route(Route(f"route-{number}", "Sales", f"//Service{number}", instance, None, address, None))
    return definitions


def conversations(routes: int, count: int) -> list[tuple[RoutedMessage, Outcome]]:
    """Returns conversations and where each must go."""
    found = []
    for number in range(count):
        at = number % (routes - 1)
        if number % 3 == 2:
            found.append((RoutedMessage(f"c{number}", "//Local", None, True, "Sales"), Outcome.LOCAL))
        else:
            instance = f"broker-{at}" if at % 2 and number % 3 else None
            asked = RoutedMessage(f"c{number}", f"//Service{at}", instance, True, "Sales")
            found.append((asked, Outcome.REMOTE))
    return found


def main() -> None:
    """Prints a line for each number of routes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=200_000)
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    print(machine())
    rates: dict[int, list[float]] = {routes: [] for routes in ROUTES}
    loads_s: dict[int, float] = {}
    tables = {}
    for routes in ROUTES:
        began_s = time.perf_counter()
        tables[routes] = definitions_with(routes)
        loads_s[routes] = time.perf_counter() - began_s
    for _ in range(arguments.turns):
        for routes in ROUTES:
            asked = conversations(routes, arguments.decisions)
            table = tables[routes]
            began_s = time.perf_counter()
            decided = [resolve(table, INSTANCE, conversation).outcome for conversation, _ in asked]
            rates[routes].append(len(asked) / (time.perf_counter() - began_s))
            if decided != [outcome for _, outcome in asked]:
                raise SystemExit("wrong decisions")
    for routes in ROUTES:
        median = statistics.median(rates[routes])
        print(f"{routes:>6,} routes: {median:>9,.0f} decisions/s, loaded in {loads_s[routes]:.2f} s")


if __name__ == "__main__":
    main()
