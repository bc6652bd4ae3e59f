"""The commands `database`, `service`, `route` and `diagnose` as a user types them, with definitions in a real Kafka."""

import json
import uuid
from typing import Any

import pytest

from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.wire.topics import Topics
from tests.support.checked_producer import CheckedProducer
from tests.support.shared_broker import SharedBroker
from tests.support.shell import Shell


@pytest.fixture
def prefix(broker: SharedBroker) -> str:
    """Returns the prefix of topics of the test's own."""
    found = f"routing-{uuid.uuid4().hex[:8]}-"
    topics = Topics(found)
    Admin(Cluster(broker.bootstrap_servers)).create_topics([*topics.specs(), *topics.service_specs()], 2, 1)
    return found


@pytest.fixture
def shell(broker: SharedBroker, prefix: str) -> Shell:
    return Shell(broker.bootstrap_servers, prefix)


def listed(shell: Shell, what: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shell.run(what, "list", "--json").splitlines()]


def test_definitions_from_their_creation_to_their_end(shell: Shell) -> None:
    assert "broker instance 11111111" in shell.run("database", "create", "Shop", "--broker-instance", "11111111")
    shell.run("service", "create", "//Shop", "--database", "Shop", "--queue", "shop")
    to_stock = ("--database", "Shop", "--service", "//Stock")
    shell.run("route", "create", "ToStock", *to_stock, "--address", "tcp://stock:4022", "--lifetime", "1h")
    assert [row["name"] for row in listed(shell, "database")] == ["Shop", "msdb"]
    assert listed(shell, "service") == [{"name": "//Shop", "database": "Shop", "queue": "shop"}]
    assert {row["name"]: row["is_expired"] for row in listed(shell, "route") if row["database"] == "Shop"} == {
        "AutoCreatedLocal": False,
        "ToStock": False,
    }
    asked = ("//Stock", "--database", "Shop")
    assert shell.run("route", "explain", *asked).splitlines()[-1] == "  => REMOTE: tcp://stock:4022"
    shell.run("route", "alter", "ToStock", "--database", "Shop", "--address", "tcp://other:4022")
    assert json.loads(shell.run("route", "explain", *asked, "--json"))["address"] == "tcp://other:4022"
    later = json.loads(shell.run("route", "explain", *asked, "--at", "2100-01-01T00:00:00Z", "--json"))
    assert (later["outcome"], later["number"]) == ("DELAYED", 9796)
    shell.run("route", "drop", "ToStock", "--database", "Shop")
    shell.run("service", "drop", "//Shop", "--database", "Shop")
    shell.run("database", "drop", "Shop")
    assert [row["name"] for row in listed(shell, "database")] == ["msdb"]


def test_what_is_refused_is_said_with_its_number_and_changes_nothing(shell: Shell) -> None:
    shell.run("database", "create", "Shop", "--broker-instance", "11111111")
    before = listed(shell, "route")
    said = shell.run("database", "create", "Other", "--broker-instance", "11111111", code=2)
    assert said.endswith("(9772).\n")
    to_stock = ("route", "create", "ToStock", "--database", "Shop", "--service", "//Stock")
    assert "(9745)" in shell.run(*to_stock, "--address", "TRANSPORT", code=2)
    assert "(9744)" in shell.run(*to_stock, "--address", "stock:4022", code=2)
    assert "There is no database 'Nowhere'" in shell.run("database", "drop", "Nowhere", code=2)
    assert [row["name"] for row in listed(shell, "database")] == ["Shop", "msdb"]
    assert listed(shell, "route") == before


def test_invalid_records_are_passed_over(broker: SharedBroker, shell: Shell, prefix: str) -> None:
    producer = CheckedProducer(Cluster(broker.bootstrap_servers, {}))
    topic = Topics(prefix).service_commands
    producer.produce(topic, "{", b"Shop")
    producer.produce(topic, json.dumps({"type": "DROP_DATABASE", "database": "msdb"}), b"another key")
    producer.produce(topic, json.dumps({"type": "DROP_DATABASE", "database": "msdb"}), b"msdb")
    producer.flush()
    said = shell.run("database", "list")
    assert said.count("is not a valid service command") == 2
    assert "msdb" in said.splitlines()[-1]


def test_diagnose_names_what_does_not_work(shell: Shell) -> None:
    [monitor] = shell.run("diagnose", code=1).splitlines()
    assert monitor.startswith("program down: monitor: no monitor is in the consumer group")
    shell.run("database", "create", "Shop")
    shell.run("service", "create", "//Shop", "--database", "Shop", "--queue", f"shop-{uuid.uuid4().hex}")
    shell.run("route", "create", "Lost", "--database", "Shop", "--service", "//Nowhere", "--address", "LOCAL")
    kinds = [json.loads(line)["kind"] for line in shell.run("diagnose", "--json", code=1).splitlines()]
    assert kinds == [*["program down"] * 3, "route to nowhere", "no topic"]
