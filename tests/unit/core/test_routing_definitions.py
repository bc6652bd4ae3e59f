"""CREATE, ALTER and DROP of routes: each refusal with its number, expiry, and limits."""

from typing import Any

import pytest

from streaming.core.routing.addresses import LOCAL, TRANSPORT
from streaming.core.routing.databases import Database
from streaming.core.routing.definition_rules import (
    MAX_DEFINITIONS,
    MAX_LIFETIME_S,
    MAX_NAME_LENGTH,
    MAX_SERVICE_NAME_LENGTH,
    RefusedDefinitionError,
    expiry_ms,
)
from streaming.core.routing.definitions import AUTO_CREATED_LOCAL, MSDB, Definitions
from streaming.core.routing.routing_table import Route
from streaming.wire.service_definitions import rows_of
from tests.support.routing_scene import (
    ELSEWHERE,
    HOST_1,
    HOST_2,
    IN_A,
    IN_B,
    STOCK,
    A,
    B,
    decide,
    own,
    refused,
    route,
    scene,
    service,
)

NAMED = "must have a service name, a broker instance and a network address"
NO_ADDRESS = "is not an address; write LOCAL, TRANSPORT or tcp://HOST:PORT"

# A route that CREATE ROUTE refuses, the number, and the reason.
INVALID: dict[str, tuple[Route, int | None, str]] = {
    "mirror without broker instance": (route("r", STOCK, HOST_1, mirror=HOST_2), 9743, NAMED),
    "mirror without service": (route("r", None, HOST_1, mirror=HOST_2), 9743, NAMED),
    "mirror beside LOCAL": (route("r", STOCK, LOCAL, instance=IN_B, mirror=HOST_2), 9743, NAMED),
    "mirror beside TRANSPORT": (route("r", STOCK, TRANSPORT, instance=IN_B, mirror=HOST_2), 9743, NAMED),
    "no address": (route("r", STOCK, "host1:4022"), 9744, NO_ADDRESS),
    "empty address": (route("r", STOCK, ""), 9744, NO_ADDRESS),
    "LOCAL in lower case": (route("r", STOCK, "local"), 9744, NO_ADDRESS),
    "no mirror address": (route("r", STOCK, HOST_1, instance=IN_B, mirror="LOCAL"), 9744, "'LOCAL' is not an address"),
    "TRANSPORT with a service": (route("r", STOCK, TRANSPORT), 9745, "TRANSPORT must not have a service name"),
    "mirror equal to the address": (
        route("r", STOCK, "tcp://Host1:4022/", instance=IN_B, mirror=HOST_1),
        9747,
        "mirror address must differ",
    ),
    "broker instance without service": (route("r", None, HOST_1, instance=IN_B), None, "or it matches nothing"),
    "empty broker instance": (route("r", STOCK, HOST_1, instance=""), None, "the name of a broker instance"),
    "empty service": (route("r", "", HOST_1), None, "the name of a service must have 1 to 256"),
    "long service": (route("r", "s" * (MAX_SERVICE_NAME_LENGTH + 1), HOST_1), None, "the name of a service"),
    "control character": (route("r", "a\x00b", HOST_1), None, "all of them printable"),
    "letter beyond ASCII": (route("r", STOCK, HOST_1, instance="\u0130"), None, "only ASCII characters"),
    "empty name": (route("", STOCK, HOST_1), None, "the name of a route must have 1 to 128"),
    "long name": (route("r" * (MAX_NAME_LENGTH + 1), STOCK, HOST_1), None, "the name of a route"),
    "missing database": (route("r", STOCK, HOST_1, database="C"), None, "there is no database 'C'"),
}


def routes_of(definitions: Definitions) -> dict[str, Route]:
    return definitions.tables[A].routes


@pytest.mark.parametrize("case", INVALID)
def test_create_route_refuses_what_is_not_a_valid_route(case: str) -> None:
    invalid, number, reason = INVALID[case]
    definitions = scene(route("other", STOCK, HOST_1), service(B))

    with refused(definitions, number, reason):
        definitions.create_route(invalid)
    assert decide(definitions, own()).route == "other"


def test_create_route_refuses_a_second_route_of_a_name() -> None:
    definitions = scene(route("r", STOCK, HOST_1))

    with refused(definitions, None, "there is a route 'r' in database 'A' already"):
        definitions.create_route(route("r", "Parts", HOST_2))
    # An expired route keeps its name.
    definitions.alter_route(A, "r", expires_at_ms=5)
    definitions.advance(5)
    with refused(definitions, None, "there is a route 'r'"):
        definitions.create_route(route("r", "Parts", HOST_2))


def test_two_databases_may_have_routes_of_one_name() -> None:
    scene(route("r", STOCK, HOST_1), route("r", STOCK, HOST_2, database=B))


@pytest.mark.parametrize(
    "valid",
    [
        route("r", STOCK, HOST_1, instance=ELSEWHERE, mirror=HOST_2),
        route("r", STOCK, instance=IN_B),
        route("r", "s" * MAX_SERVICE_NAME_LENGTH, HOST_1),
        route("r" * MAX_NAME_LENGTH, None),
        route("r", None, TRANSPORT),
        route("r", None, f"{HOST_1}/prefix"),
    ],
)
def test_create_route_takes_valid_routes(valid: Route) -> None:
    assert list(routes_of(scene(valid)).values()) == [valid]


@pytest.mark.parametrize("lifetime_s", [0, -1, MAX_LIFETIME_S + 1])
def test_a_lifetime_out_of_range_is_refused_with_9746(lifetime_s: int) -> None:
    with pytest.raises(RefusedDefinitionError, match="from 1 to 2147483647 s") as caught:
        expiry_ms(1000, lifetime_s)
    assert caught.value.number == 9746


def test_a_lifetime_begins_with_the_statement() -> None:
    assert expiry_ms(1_000, 1) == 2_000
    assert expiry_ms(1_000, MAX_LIFETIME_S) == 1_000 + MAX_LIFETIME_S * 1000


# ALTER ROUTE


def test_alter_route_changes_what_it_names_and_nothing_else() -> None:
    definitions = scene(route("r", STOCK, HOST_1, instance=ELSEWHERE, expires_ms=9000))

    definitions.alter_route(A, "r", address=HOST_2)
    assert routes_of(definitions)["r"] == route("r", STOCK, HOST_2, instance=ELSEWHERE, expires_ms=9000)
    definitions.alter_route(A, "r", service_name="Parts", broker_instance=IN_B)
    assert routes_of(definitions)["r"] == route("r", "Parts", HOST_2, instance=IN_B, expires_ms=9000)
    definitions.alter_route(A, "r", mirror_address=HOST_1)
    assert routes_of(definitions)["r"] == route("r", "Parts", HOST_2, instance=IN_B, expires_ms=9000, mirror=HOST_1)
    definitions.alter_route(A, "r")
    assert routes_of(definitions)["r"].mirror_address == HOST_1


def test_an_altered_route_matches_by_its_new_names_only() -> None:
    definitions = scene(route("r", STOCK, HOST_1))
    definitions.alter_route(A, "r", service_name="Parts")

    assert decide(definitions, own()).rule == 7
    assert decide(definitions, own("Parts")).route == "r"
    definitions.alter_route(A, "r", broker_instance=ELSEWHERE)
    assert decide(definitions, own("Parts")).rule == 3


PLAIN = route("plain", STOCK, HOST_1)
MIRRORED = route("mirrored", STOCK, HOST_1, instance=ELSEWHERE, mirror=HOST_2)
ANY = route("any", None, HOST_1)


@pytest.mark.parametrize(
    ("name", "changes", "number", "reason"),
    [
        ("plain", {"mirror_address": HOST_2}, 9743, NAMED),
        ("mirrored", {"address": LOCAL}, 9743, NAMED),
        ("mirrored", {"address": TRANSPORT}, 9743, NAMED),
        ("plain", {"address": "host1"}, 9744, NO_ADDRESS),
        ("mirrored", {"mirror_address": TRANSPORT}, 9744, NO_ADDRESS),
        ("plain", {"address": TRANSPORT}, 9745, "must not have a service name"),
        ("mirrored", {"mirror_address": HOST_1}, 9747, "must differ"),
        ("mirrored", {"address": HOST_2}, 9747, "must differ"),
        ("any", {"broker_instance": IN_B}, None, "or it matches nothing"),
        ("plain", {"service_name": ""}, None, "the name of a service"),
        ("missing", {"address": HOST_2}, None, "there is no route 'missing' in database 'A'"),
    ],
)
def test_alter_route_refuses_what_create_route_refuses(
    name: str, changes: dict[str, Any], number: int | None, reason: str
) -> None:
    definitions = scene(PLAIN, MIRRORED, ANY)

    with refused(definitions, number, reason):
        definitions.alter_route(A, name, **changes)
    assert decide(definitions, own()).route == "plain"


def test_alter_and_drop_route_refuse_a_missing_database() -> None:
    definitions = scene()

    with refused(definitions, None, "there is no database 'C'"):
        definitions.alter_route("C", "r", address=HOST_1)
    with refused(definitions, None, "there is no database 'C'"):
        definitions.drop_route("C", "r")


def test_drop_route_removes_it_and_refuses_a_missing_one() -> None:
    definitions = scene(PLAIN, route("s", STOCK, HOST_2, instance=IN_A), route("t", STOCK, HOST_2, instance=IN_B))
    definitions.drop_route(A, "plain")
    definitions.drop_route(A, "s")

    assert decide(definitions, own()).route == "t"
    with refused(definitions, None, "there is no route 'plain' in database 'A'"):
        definitions.drop_route(A, "plain")


# Expiry


def test_a_route_expires_at_its_instant_and_not_before() -> None:
    definitions = scene(route("r", STOCK, HOST_1, expires_ms=1000))

    definitions.advance(999)
    assert decide(definitions, own()).route == "r"
    assert definitions.next_expiry_ms() == 1000
    version = definitions.version
    definitions.advance(1000)
    assert decide(definitions, own()).rule == 7
    assert definitions.version == version + 1
    assert definitions.next_expiry_ms() is None


def test_an_expired_route_stays_listed() -> None:
    definitions = scene(route("r", STOCK, HOST_1, expires_ms=1000))
    before = rows_of(definitions)
    definitions.advance(5000)

    assert rows_of(definitions) == before
    assert [row["expires_at"] for row in rows_of(definitions)["routes"]] == ["1970-01-01T00:00:01.000Z"]


def test_a_route_that_is_created_after_its_expiry_matches_nothing() -> None:
    definitions = scene()
    definitions.advance(1000)
    definitions.create_route(route("r", STOCK, HOST_1, expires_ms=1000))

    assert decide(definitions, own()).rule == 7
    assert list(routes_of(definitions)) == ["r"]
    definitions.drop_route(A, "r")
    assert not routes_of(definitions)


def test_alter_route_revives_an_expired_route() -> None:
    definitions = scene(route("r", STOCK, HOST_1, expires_ms=1000))
    definitions.advance(1000)
    definitions.alter_route(A, "r", expires_at_ms=2000)

    assert decide(definitions, own()).route == "r"
    definitions.advance(2000)
    assert decide(definitions, own()).rule == 7


def test_alter_route_without_a_lifetime_leaves_a_route_expired() -> None:
    definitions = scene(route("r", STOCK, HOST_1, expires_ms=1000))
    definitions.advance(1000)
    definitions.alter_route(A, "r", address=HOST_2)

    assert decide(definitions, own()).rule == 7


def test_a_longer_lifetime_replaces_the_shorter_one() -> None:
    definitions = scene(route("r", STOCK, HOST_1, expires_ms=1000))
    definitions.alter_route(A, "r", expires_at_ms=3000)

    definitions.advance(1000)
    assert decide(definitions, own()).route == "r"
    definitions.advance(3000)
    assert decide(definitions, own()).rule == 7


def test_the_expiry_of_a_route_that_was_dropped_does_not_concern_its_successor() -> None:
    definitions = scene(route("r", STOCK, HOST_1, expires_ms=1000))
    definitions.drop_route(A, "r")
    definitions.advance(500)
    definitions.create_route(route("r", STOCK, HOST_2))
    definitions.create_database(Database("C", "c"))
    definitions.create_route(route("c", STOCK, HOST_1, database="C", expires_ms=1000))
    definitions.drop_database("C")
    definitions.advance(1000)

    assert decide(definitions, own()).address == HOST_2


def test_a_dropped_route_may_leave_its_expiry_behind() -> None:
    definitions = scene(route("r", STOCK, HOST_1, expires_ms=1000))
    definitions.drop_route(A, "r")
    version = definitions.version
    definitions.advance(1000)

    assert definitions.version == version


def test_time_never_runs_backwards() -> None:
    definitions = scene(route("r", STOCK, HOST_1, expires_ms=1000))
    definitions.advance(1000)
    definitions.advance(10)

    assert definitions.now_ms == 1000
    assert decide(definitions, own()).rule == 7


# Limits


def full() -> Definitions:
    """Returns as many definitions as there may be: 10,000, most of them routes of msdb."""
    definitions = Definitions.of_new_instance()
    # Two are there: msdb and its AutoCreatedLocal.
    for number in range(MAX_DEFINITIONS - 2):
        definitions.load_route(route(f"r{number}", f"s{number}", HOST_1, database=MSDB))
    return definitions


def test_ten_thousand_definitions_are_the_limit() -> None:
    definitions = full()

    with refused(definitions, None, "too many definitions: 10,000 databases, services and routes are the limit"):
        definitions.create_route(route("one-more", STOCK, database=MSDB))
    with refused(definitions, None, "too many definitions"):
        definitions.load_route(route("one-more", STOCK, database=MSDB))
    with refused(definitions, None, "too many definitions"):
        definitions.create_service(service(MSDB))
    with refused(definitions, None, "too many definitions"):
        definitions.create_database(Database("C", "c"), with_default_route=False)
    # A change needs no room.
    definitions.alter_route(MSDB, "r0", address=HOST_2)


def test_a_database_needs_room_for_its_first_route_too() -> None:
    definitions = full()
    definitions.drop_route(MSDB, "r0")

    with refused(definitions, None, "too many definitions"):
        definitions.create_database(Database("C", "c"))
    definitions.drop_route(MSDB, "r1")
    definitions.create_database(Database("C", "c"))
    # Dropping it frees the room again.
    definitions.drop_database("C")
    definitions.create_route(route("r0", STOCK, database=MSDB))
    definitions.create_service(service(MSDB))


def test_each_of_ten_thousand_routes_is_found() -> None:
    definitions = full()
    definitions.drop_route(MSDB, AUTO_CREATED_LOCAL)

    for number in range(0, MAX_DEFINITIONS - 2, 7):
        decision = decide(definitions, own(f"s{number}", database=MSDB))
        assert (decision.rule, decision.route) == (2, f"r{number}")
    assert decide(definitions, own(database=MSDB)).rule == 7
