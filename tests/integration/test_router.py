"""The router with a real Kafka and a real Spark: definitions by commands, messages as programs send them, decisions.

The tests share one router. Those that stop it have topics and a checkpoint of their own.
"""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.routers import DEADLINE_S, PARTITIONS, Routed, partition_of
from tests.support.shared_broker import SharedBroker
from tests.support.spark_application import SparkApplication
from tests.support.waiting import wait_until


def define(routed: Routed) -> None:
    """Creates the databases and services of the tests, by the commands that a user types."""
    for database in ("Shop", "Warehouse"):
        routed.shell.run("database", "create", database)
    routed.shell.run("service", "create", "//Shop", "--database", "Shop", "--queue", "shop")
    routed.shell.run("service", "create", "//Stock", "--database", "Warehouse", "--queue", "stock")


def define_by_records(routed: Routed) -> None:
    """Creates the same by records, which takes less time."""
    routed.command_record({"type": "CREATE_DATABASE", "database": "Shop", "broker_instance": "1"})
    routed.command_record({"type": "CREATE_DATABASE", "database": "Warehouse", "broker_instance": "2"})
    routed.command_record({"type": "CREATE_SERVICE", "database": "Shop", "service": "//Shop", "queue": "shop"})
    routed.command_record({"type": "CREATE_SERVICE", "database": "Warehouse", "service": "//Stock", "queue": "stock"})
    routed.flush()


@pytest.fixture(scope="module")
def routed(broker: SharedBroker, spark: SparkApplication, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routed]:
    """The topics of the router that the tests share."""
    found = Routed(broker.bootstrap_servers, tmp_path_factory.mktemp("router"), spark)
    define(found)
    with found.running():
        yield found


@pytest.fixture(scope="module")
def second(routed: Routed, spark: SparkApplication, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The log of a second router, which runs beside the other tests until it gives up."""
    folder = tmp_path_factory.mktemp("second")
    command = Routed(routed.bootstrap_servers, folder, spark, prefix=routed.prefix).command()
    with spark.run(command, folder / "router.log"):
        yield folder / "router.log"


@pytest.mark.usefixtures("second")
def test_the_messages_of_each_conversation_are_decided_once_and_in_order(routed: Routed) -> None:
    names = [f"many-{number}" for number in range(12)]
    assert {partition_of(name) for name in names} == set(range(PARTITIONS)), "the test needs all partitions"
    for number in range(20):
        for name in names:
            routed.send(name, b"body", begin=number == 0)
    routed.flush()
    for name in names:
        found = routed.wait_for(name, 20)
        assert [each["sequence"] for each in found] == list(range(20))
        offsets = [each["offset"] for each in found]
        assert offsets == sorted(set(offsets))
        assert {(each["queue"], each["service"], each["from_service"]) for each in found} == {
            ("stock", "//Stock", "//Shop")
        }
    partitions = {each["conversation_id"]: number for number, each in routed.decisions() if "conversation_id" in each}
    assert all(partitions[name] == partition_of(name) for name in names)
    sent = {
        (record.partition(), record.offset()): record.key() for record in routed.records(routed.topics.service_messages)
    }
    for number, each in routed.decisions():
        if each["decision"] == "DELIVER":
            assert sent[number, each["offset"]] == each["conversation_id"].encode()


def test_a_held_message_goes_when_its_service_is_created(routed: Routed) -> None:
    for number in range(3):
        routed.send("held", begin=number == 0, to_service="//Later")
    routed.flush()
    key = "held/initiator"

    def row() -> dict[str, Any] | None:
        return routed.view(routed.topics.service_transmissions).get(key)

    held = wait_until(row, DEADLINE_S, "the row of the held messages") or {}
    assert (held["messages"], held["to_service"]) == (3, "//Later")
    assert held["number"] is not None
    assert held["reason"]
    routed.shell.run("service", "create", "//Later", "--database", "Warehouse", "--queue", "later")
    assert [each["sequence"] for each in routed.wait_for("held", 3)] == [0, 1, 2]
    wait_until(lambda: row() is None, DEADLINE_S, "the end of the row")
    assert routed.view(routed.topics.service_conversations)[key]["state"] == "CO"


def test_malformed_messages_become_dead_letters_and_their_neighbours_go_on(routed: Routed) -> None:
    routed.send("sound", begin=True)
    bad: list[list[tuple[str, bytes | None]]] = [
        [],
        [("envelope", None)],
        [("envelope", b"{")],
        [("envelope", b"{}"), ("envelope", b"{}")],
        [("envelope", b"x" * 9_000)],
    ]
    for headers in bad:
        routed.send_headers("sound", headers, b"body")
    routed.send("sound")
    routed.flush()
    first, last = routed.wait_for("sound", 2)
    assert last["offset"] == first["offset"] + len(bad) + 1
    place = partition_of("sound")
    letters = {
        each["offset"]: each["reason"]
        for number, each in routed.decisions()
        if each["decision"] == "DEAD_LETTER" and number == place
    }
    reasons = [letters[first["offset"] + 1 + number] for number in range(len(bad))]
    for part, reason in zip(("0 headers", "no value", "JSON", "2 headers", "9000 bytes"), reasons, strict=True):
        assert part in reason


def test_bodies_do_not_count_whatever_their_size(routed: Routed) -> None:
    routed.send("large", b"x" * 900_000, begin=True)
    routed.send_headers("large", [("envelope", b"{}")], None)
    routed.send("large", b"")
    routed.flush()
    assert [each["sequence"] for each in routed.wait_for("large", 2)] == [0, 1]


def test_definitions_and_progress_are_written(routed: Routed) -> None:
    rows = routed.records(routed.topics.service_definitions, 1)
    keys = {tuple(json.loads(record.key() or b"")) for record in rows}
    assert {("database", "Shop"), ("service", "Warehouse", "//Stock"), ("route", "Shop", "AutoCreatedLocal")} <= keys
    progress = [json.loads(record.value() or b"") for record in routed.records(routed.topics.service_progress, 1)]
    assert [each["batch"] for each in progress] == list(range(len(progress)))
    assert progress[-1]["generation"] == 1


def test_a_second_router_is_refused(second: Path) -> None:
    wait_until(lambda: "error: " in second.read_text(), DEADLINE_S, "the second router's end")
    assert "Another router runs on the same topics" in second.read_text()


@pytest.fixture(scope="module")
def stopped(broker: SharedBroker, spark: SparkApplication, tmp_path_factory: pytest.TempPathFactory) -> Routed:
    """A router that was stopped right after a batch with messages, decided under one PYTHONHASHSEED."""
    found = Routed(broker.bootstrap_servers, tmp_path_factory.mktemp("stopped"), spark)
    define_by_records(found)
    for attempt in range(3):
        with found.running_process(environment={"PYTHONHASHSEED": "1"}) as process, found.first_decision() as wait:
            for number in range(8):
                name = f"redone-{attempt}-{number}"
                found.send(name, begin=True)
                found.send(name, to_service="//Stock" if number % 2 else "//Nowhere")
                found.send_headers(name, [])
                found.send(f"{name}-held", begin=True, to_service="//Nowhere")
            found.flush()
            wait()
        assert process.poll() == 0
        # A tick may have caused one more batch.
        if messages_end(found, -1) > messages_end(found, -2):
            return found
    pytest.fail("the last batch never had messages")


def messages_end(routed: Routed, which: int) -> int:
    """Returns the sum of the offsets of service-messages at the end of one of the batches."""
    folder = routed.checkpoint / "offsets"
    lines = (folder / str(batches(folder)[which])).read_text().splitlines()[2:]
    ends = {topic: found for line in lines if line != "-" for topic, found in json.loads(line).items()}
    return sum(ends[routed.topics.service_messages].values())


def batches(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def undo_newest_commit(checkpoint: Path) -> int:
    """Deletes the newest commit, so that its batch runs again; returns the batch."""
    newest = batches(checkpoint / "commits")[-1]
    (checkpoint / "commits" / str(newest)).unlink()
    (checkpoint / "commits" / f".{newest}.crc").unlink(missing_ok=True)
    return newest


def test_a_router_without_its_checkpoint_is_refused(stopped: Routed, tmp_path: Path) -> None:
    said = stopped.fails("--checkpoint-location", str(tmp_path / "new"))
    assert "there is no checkpoint" in said
    assert not (tmp_path / "new").exists() or not list((tmp_path / "new").iterdir())


def test_an_older_copy_of_the_checkpoint_is_refused(stopped: Routed, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(stopped.checkpoint, copy)
    for folder in ("offsets", "commits"):
        newest = batches(copy / folder)[-1]
        for name in (f"{newest}", f".{newest}.crc", f"{newest - 1}", f".{newest - 1}.crc"):
            (copy / folder / name).unlink(missing_ok=True)
    assert "is older than the work of the last router" in stopped.fails("--checkpoint-location", str(copy))


def test_a_batch_that_runs_again_writes_the_same_also_if_settings_have_changed(stopped: Routed) -> None:
    topics = (
        stopped.topics.service_decisions,
        stopped.topics.service_conversations,
        stopped.topics.service_transmissions,
    )
    before = {topic: stopped.records(topic) for topic in topics}
    again = undo_newest_commit(stopped.checkpoint)
    with stopped.running_process("--keep", "48h", environment={"PYTHONHASHSEED": "2"}) as process:
        # Read before anything else is decided.
        after = {topic: stopped.records(topic) for topic in topics}
        stopped.send("after", begin=True)
        stopped.flush()
        assert [each["sequence"] for each in stopped.wait_for("after", 1)] == [0]
    assert process.poll() == 0
    values: dict[tuple[int | None, int], list[bytes | None]] = defaultdict(list)
    for record in after[stopped.topics.service_decisions]:
        values[record.partition(), json.loads(record.value() or b"")["number"]].append(record.value())
    assert all(len(set(found)) == 1 for found in values.values())
    assert any(len(found) > 1 for found in values.values()), "no decision was written again"
    for topic in topics[1:]:
        known = {(record.key(), record.value()) for record in before[topic]}
        assert {(record.key(), record.value()) for record in after[topic]} == known
    settings = {path.name: path.read_text() for path in stopped.checkpoint.glob("queue-activation.settings-*")}
    first = max(int(name.rpartition("-")[2]) for name in settings)
    assert first > again, "the batch that ran again had the new settings"
    assert '"keep_ms":172800000' in settings[f"queue-activation.settings-{first}"]
