"""CREATE, ALTER and DROP of databases and services: their effects, and each refusal."""

import pytest

from streaming.core.routing.conversation import Outcome
from streaming.core.routing.databases import MIRROR, PRINCIPAL, Database, Service
from streaming.core.routing.definition_rules import MAX_NAME_LENGTH, MAX_SERVICE_NAME_LENGTH
from streaming.core.routing.definitions import AUTO_CREATED_LOCAL, MSDB, Definitions
from streaming.wire.service_definitions import rows_of
from tests.support.routing_scene import (
    ELSEWHERE,
    HOST_1,
    IN_A,
    IN_B,
    STOCK,
    A,
    B,
    decide,
    incoming,
    own,
    refused,
    route,
    scene,
    service,
)

AUTO = {
    "service_name": None,
    "broker_instance": None,
    "expires_at": None,
    "address": "LOCAL",
    "mirror_address": None,
}


def test_a_new_instance_has_msdb_with_the_route_auto_created_local() -> None:
    assert rows_of(Definitions.of_new_instance()) == {
        "databases": [
            {"name": MSDB, "broker_instance": None, "is_broker_enabled": True, "mirroring_role": PRINCIPAL, "epoch": 0}
        ],
        "services": [],
        "routes": [{"name": AUTO_CREATED_LOCAL, "database": MSDB, **AUTO}],
    }


def test_a_new_database_has_the_route_auto_created_local() -> None:
    definitions = Definitions.of_new_instance()
    definitions.create_database(Database(A, IN_A))

    assert rows_of(definitions)["routes"][0] == {"name": AUTO_CREATED_LOCAL, "database": A, **AUTO}
    definitions.drop_route(A, AUTO_CREATED_LOCAL)
    assert decide(definitions, own()).rule == 7


@pytest.mark.parametrize(
    ("database", "number", "reason"),
    [
        (Database(A, ELSEWHERE), None, "there is a database 'A' already"),
        (Database(MSDB, ELSEWHERE), None, "there is a database 'msdb' already"),
        (Database("C", IN_A), 9772, "the broker of database 'C' cannot be enabled: database 'A' has the same"),
        (Database("", ELSEWHERE), None, "the name of a database must have 1 to 128 characters"),
        (Database("c" * (MAX_NAME_LENGTH + 1), ELSEWHERE), None, "the name of a database"),
        (Database("c\n", ELSEWHERE), None, "all of them printable"),
        (Database("c", "\u0130"), None, "only ASCII characters"),
        (Database("C", ""), None, "the name of a broker instance"),
        (Database("C", ELSEWHERE, mirroring_role="WITNESS"), None, "the mirroring role must be PRINCIPAL or MIRROR"),
    ],
)
def test_create_database_refuses(database: Database, number: int | None, reason: str) -> None:
    definitions = scene(route("r", STOCK), service(A))

    with refused(definitions, number, reason):
        definitions.create_database(database)
    assert set(definitions.tables) == {A, B, MSDB}
    assert decide(definitions, own(instance=IN_A)).service == service(A)


def test_a_database_with_a_disabled_broker_may_have_the_broker_instance_of_another() -> None:
    definitions = scene()
    definitions.create_database(Database("C", IN_A, is_broker_enabled=False))

    with refused(definitions, 9772, "the broker of database 'C' cannot be enabled"):
        definitions.alter_database("C", is_broker_enabled=True)
    with refused(definitions, 9772, "the broker of database 'B' cannot be enabled"):
        definitions.alter_database(B, broker_instance=IN_A)
    # Once the broker of A is disabled, or has another identifier, that of C can be enabled.
    definitions.alter_database(A, is_broker_enabled=False)
    definitions.alter_database("C", is_broker_enabled=True)
    assert definitions.database_here(IN_A) == "C"
    with refused(definitions, 9772, "database 'C' has the same broker instance"):
        definitions.alter_database(A, is_broker_enabled=True)


def test_a_mirror_with_an_enabled_broker_counts_for_9772() -> None:
    definitions = scene()
    definitions.alter_database(A, mirroring_role=MIRROR)

    with refused(definitions, 9772, "cannot be enabled"):
        definitions.create_database(Database("C", IN_A))


def test_alter_database_changes_what_it_names() -> None:
    definitions = scene(service(A))
    definitions.alter_database(A, broker_instance=ELSEWHERE)

    assert definitions.databases[A] == Database(A, ELSEWHERE)
    assert (definitions.database_here(IN_A), definitions.database_here(ELSEWHERE)) == (None, A)
    definitions.alter_database(A, is_broker_enabled=False)
    assert definitions.databases[A] == Database(A, ELSEWHERE, is_broker_enabled=False)
    assert (definitions.is_here(A), definitions.services_here(STOCK)) == (False, ())
    definitions.alter_database(A, is_broker_enabled=True)
    assert definitions.services_here(STOCK) == (service(A),)


def test_msdb_can_be_given_a_broker_instance() -> None:
    definitions = Definitions.of_new_instance()
    definitions.alter_database(MSDB, broker_instance=ELSEWHERE)

    assert definitions.database_here(ELSEWHERE) == MSDB


def test_each_change_of_the_mirroring_role_gets_the_next_epoch() -> None:
    definitions = scene(service(A))
    definitions.alter_database(A, mirroring_role=PRINCIPAL)
    assert definitions.databases[A].epoch == 0

    definitions.alter_database(A, mirroring_role=MIRROR)
    assert definitions.databases[A].epoch == 1
    assert (definitions.is_here(A), definitions.database_here(IN_A)) == (False, None)
    definitions.alter_database(A, mirroring_role=PRINCIPAL)
    assert (definitions.databases[A].epoch, definitions.database_here(IN_A)) == (2, A)


@pytest.mark.parametrize("role", ["WITNESS", "principal", ""])
def test_alter_database_refuses_another_mirroring_role(role: str) -> None:
    definitions = scene()

    with refused(definitions, None, "the mirroring role must be"):
        definitions.alter_database(A, mirroring_role=role)


def test_alter_and_drop_database_refuse_a_missing_one() -> None:
    definitions = scene()

    with refused(definitions, None, "there is no database 'C'"):
        definitions.alter_database("C", is_broker_enabled=False)
    with refused(definitions, None, "there is no database 'C'"):
        definitions.drop_database("C")


def test_msdb_cannot_be_dropped() -> None:
    definitions = scene(service(MSDB))

    with refused(definitions, None, "msdb cannot be dropped: every instance has it"):
        definitions.drop_database(MSDB)


def test_drop_database_removes_its_services_and_routes() -> None:
    definitions = scene(route("r", STOCK, HOST_1, database=B), service(B), service(B, "Parts"), service(A))
    definitions.create_route(route("any", None, database=MSDB))
    definitions.drop_database(B)

    rows = rows_of(definitions)
    assert [row["name"] for row in rows["databases"]] == [A, MSDB]
    assert [row["database"] for row in rows["services"]] == [A]
    assert [row["name"] for row in rows["routes"]] == ["any"]
    assert decide(definitions, incoming(instance=IN_B)).number == 9795
    # Its name and its broker instance are free again.
    definitions.create_database(Database(B, IN_B))


def test_drop_database_takes_one_whose_broker_is_disabled_or_has_no_identifier() -> None:
    definitions = scene()
    definitions.create_database(Database("C", IN_A, is_broker_enabled=False))
    definitions.create_database(Database("D", None))
    definitions.drop_database("C")
    definitions.drop_database("D")

    assert definitions.database_here(IN_A) == A


# Services


@pytest.mark.parametrize(
    ("created", "reason"),
    [
        (Service(STOCK, A, "q"), "there is a service 'Stock' in database 'A' already"),
        (Service(STOCK, "C", "q"), "there is no database 'C'"),
        (Service("", A, "q"), "the name of a service must have 1 to 256 characters"),
        (Service("s" * (MAX_SERVICE_NAME_LENGTH + 1), A, "q"), "the name of a service"),
        (Service("a\tb", A, "q"), "all of them printable"),
        (Service("Parts", A, ""), "the name of a queue must have 1 to 386 characters"),
        (Service("Parts", A, "q" * 387), "the name of a queue"),
    ],
)
def test_create_service_refuses(created: Service, reason: str) -> None:
    definitions = scene(service(A))

    with refused(definitions, None, reason):
        definitions.create_service(created)
    assert definitions.services_here(created.name) == ((service(A),) if created.name == STOCK else ())


def test_two_databases_may_have_services_of_one_name() -> None:
    assert scene(service(B), service(A)).services_here(STOCK) == (service(A), service(B))


def test_alter_service_moves_it_to_another_queue() -> None:
    definitions = scene(service(A), service(B))
    definitions.alter_service(A, STOCK, "other")

    assert definitions.service(A, STOCK) == Service(STOCK, A, "other")
    assert definitions.services_here(STOCK) == (Service(STOCK, A, "other"), service(B))


def test_alter_and_drop_service_refuse_what_is_missing() -> None:
    definitions = scene(service(A))

    with refused(definitions, None, "there is no database 'C'"):
        definitions.alter_service("C", STOCK, "q")
    with refused(definitions, None, "there is no service 'Stock' in database 'B'"):
        definitions.alter_service(B, STOCK, "q")
    with refused(definitions, None, "the name of a queue"):
        definitions.alter_service(A, STOCK, "")
    with refused(definitions, None, "there is no service 'Stock' in database 'B'"):
        definitions.drop_service(B, STOCK)


def test_drop_service_removes_it_from_its_database_only() -> None:
    definitions = scene(route("any", None), service(A), service(B))
    definitions.drop_service(A, STOCK)
    assert decide(definitions, own()).service == service(B)

    definitions.drop_service(B, STOCK)
    assert decide(definitions, own()).outcome is Outcome.DELAYED
    definitions.create_service(service(A))
    assert decide(definitions, own()).service == service(A)


def test_the_version_grows_with_each_change() -> None:
    definitions = scene()
    versions = [definitions.version]
    definitions.create_service(service(A))
    versions.append(definitions.version)
    definitions.alter_service(A, STOCK, "other")
    versions.append(definitions.version)
    definitions.alter_database(A, is_broker_enabled=False)
    versions.append(definitions.version)
    definitions.drop_service(A, STOCK)
    versions.append(definitions.version)
    definitions.create_route(route("r", STOCK))
    versions.append(definitions.version)
    definitions.alter_route(A, "r", address=HOST_1)
    versions.append(definitions.version)
    definitions.drop_route(A, "r")
    versions.append(definitions.version)
    definitions.drop_database(A)
    versions.append(definitions.version)

    assert versions == sorted(set(versions))
