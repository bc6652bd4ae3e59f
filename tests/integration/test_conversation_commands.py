"""The commands for conversations as a user types them, beside a router and a transport that run."""

import json
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import murmur2
from typer.testing import CliRunner

from streaming.cli.diagnosis.running_faults import RunningInstance
from streaming.cli.main import app
from streaming.core.conversations.decisions import ERROR, CleanUp
from streaming.core.times import iso_time
from streaming.system import wall_clock
from streaming.wire.service_decisions import MARK, MarkRecord, encoder
from streaming.wire.service_progress import KEY, ProgressRecord, encode_progress
from tests.support.http_answers import free_port, get
from tests.support.metric_names import documented_router_metrics
from tests.support.monitors import UNHURRIED
from tests.support.service_scene import ORDERS, ServiceScene, new_id
from tests.support.shared_broker import SharedBroker
from tests.support.spark_application import SparkApplication
from tests.support.transporting import PARTITIONS, Scene, headers_of
from tests.support.viewed import endpoint, transmission
from tests.support.waiting import wait_until

DEADLINE_S = 60.0
# A retry by command takes less. The router tries again every 25 s by itself.
FAR_MS = 15_000


@pytest.fixture(scope="module")
def metrics_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def scene(
    broker: SharedBroker, spark: SparkApplication, tmp_path_factory: pytest.TempPathFactory, metrics_port: int
) -> Iterator[ServiceScene]:
    scene = ServiceScene(broker.bootstrap_servers, tmp_path_factory.mktemp("conversations"), application=spark)
    scene.define()
    options = (*UNHURRIED, "--metrics-port", str(metrics_port))
    with scene.running(scene.program("router", *options), scene.program("transport")):
        yield scene


def run(scene: ServiceScene, *words: str, code: int = 0) -> str:
    """Runs a command in this process, which takes less time than the shell; returns what it prints."""
    place = ["--bootstrap-servers", scene.bootstrap_servers, "--topic-prefix", scene.prefix]
    done = CliRunner().invoke(app, [*words, *place])
    assert done.exit_code == code, done.output
    return done.output


def listed(scene: ServiceScene, *words: str) -> list[dict[str, Any]]:
    """Returns the objects that a command prints with --json."""
    return [json.loads(line) for line in run(scene, *words, "--json").splitlines()]


def wait_for_rows(scene: ServiceScene, count: int, *words: str) -> list[dict[str, Any]]:
    """Repeats a command until it prints so many objects."""
    found = wait_until(
        lambda: rows if len(rows := listed(scene, *words)) == count else None, DEADLINE_S, f"{count} rows: {words}"
    )
    return found or []


def held_for_long(scene: ServiceScene, service: str) -> list[dict[str, Any]]:
    """Returns the held messages for a service whose next try is far away."""
    far = iso_time(wall_clock.now_ms() + FAR_MS)
    return [row for row in listed(scene, "transmissions", "--service", service) if row["next_try"] > far]


def begin(scene: ServiceScene, **fields: Any) -> str:
    """Begins a conversation with a message; returns its identifier."""
    name = new_id()
    scene.say("MESSAGE", name, b"body", begin=True, **fields)
    scene.flush()
    return name


def endpoints(scene: ServiceScene, name: str) -> list[dict[str, Any]]:
    return [row for row in listed(scene, "conversation", "list") if row["conversation_id"] == name]


def wait_for_both(scene: ServiceScene, name: str) -> None:
    """Waits until the view shows both endpoints of a conversation."""
    wait_until(lambda: len(endpoints(scene, name)) == 2, DEADLINE_S, "both endpoints")


def test_what_is_held_is_listed_shown_and_explained(scene: ServiceScene) -> None:
    later = f"//later/{new_id()}"
    name = begin(scene, to_service=later)
    [held] = wait_for_rows(scene, 1, "transmissions", "--service", later)
    assert (held["conversation_id"], held["messages"], held["number"]) == (name, 1, 9796)
    assert f"{later}: 1 message since" in run(scene, "transmissions", "--service", later)
    [row] = endpoints(scene, name)
    assert (row["state"], row["service"], row["held_messages"]) == ("CO", ORDERS, 1)
    [shown] = listed(scene, "conversation", "show", name)
    assert (shown["initiator"], shown["target"], shown["held"]) == ({**row}, None, [held])
    assert shown["explained"][0]["number"] == 9796
    said = run(scene, "conversation", "show", name)
    assert "9796: the service is not here" in said
    assert re.search(r"=> +DELAYED \(9796\)", said)
    assert run(scene, "conversation", "end", name, "--cleanup").endswith("ended, state CD\n")
    wait_until(lambda: not listed(scene, "transmissions", "--service", later), DEADLINE_S, "nothing held")


def test_the_routers_metrics_tell_what_is_held_for_each_service(scene: ServiceScene, metrics_port: int) -> None:
    later = f"//later/{new_id()}"
    begin(scene, to_service=later)
    label = f'{{service="{later}"}}'

    def page() -> str:
        return get(metrics_port, "/metrics")[1]

    wait_until(lambda: f"queue_activation_router_service_held_messages{label} 1.0" in page(), DEADLINE_S, "1 held")
    told = set(re.findall(r"^(queue_activation_router_\w+)[ {]", page(), re.MULTILINE))
    documented = documented_router_metrics()
    assert {re.sub("_(bucket|sum|count)$", "", name) for name in told} == documented
    assert f"queue_activation_router_oldest_held_age_seconds{label}" in page()


def test_one_conversation_is_ended_on_both_sides(scene: ServiceScene) -> None:
    name = begin(scene)
    wait_for_both(scene, name)
    assert run(scene, "conversation", "end", name).endswith("2 endpoints ended\n"), "it may have to wait"
    shown = listed(scene, "conversation", "show", name)[0]
    assert (shown["initiator"]["state"], shown["target"]["state"]) == ("CD", "CD")
    said = run(scene, "conversation", "end", name, code=1)
    assert "the target is in state CD, which does not allow END" in said
    assert "There is no conversation 'none'" in scene.shell.run("conversation", "end", "none", code=2)


def test_an_error_tells_the_far_side_its_code_and_text(scene: ServiceScene) -> None:
    name = begin(scene)
    wait_for_both(scene, name)
    run(scene, "conversation", "end", name, "--side", "initiator", "--error", "7", "--text", "out of stock")
    errors = wait_until(
        lambda: [
            each
            for each in scene.read(scene.reserve, 0)
            if headers_of(each)["message_type_name"] == ERROR and headers_of(each)["conversation_id"] == name
        ],
        DEADLINE_S,
        "the Error",
    )
    assert b"<Code>7</Code><Description>out of stock<" in (errors[0].value() or b"")
    assert listed(scene, "conversation", "show", name)[0]["target"]["state"] == "ER"


def test_many_endpoints_are_ended_only_when_that_is_confirmed(scene: ServiceScene) -> None:
    service, queue = f"//bulk/{new_id()}", scene.create_queue("bulk")
    scene.shell.run("service", "create", service, "--database", "stock", "--queue", queue)
    names = {begin(scene, to_service=service) for _ in range(20)}
    of_service = ("--service", service)
    wait_for_rows(scene, 20, "conversation", "list", *of_service)
    assert "End 20 endpoints of 20 conversations WITH CLEANUP? Add --yes" in scene.shell.run(
        "conversation", "end", "--cleanup", *of_service, code=2
    )
    assert run(scene, "conversation", "end", "--cleanup", *of_service, "--idle", "7d") == "no endpoint to end\n"
    assert run(scene, "conversation", "end", "--cleanup", *of_service, "--yes").endswith("20 endpoints ended\n")
    ended = listed(scene, "conversation", "list", *of_service, "--state", "cd")
    assert {row["conversation_id"] for row in ended} == names
    [counted] = listed(scene, "conversation", "list", *of_service, "--counts")
    assert (counted["state"], counted["endpoints"], counted["idle_1h"]) == ("CD", 20, 0)


def test_a_delivery_that_failed_is_tried_again_at_once(scene: ServiceScene) -> None:
    service, queue = f"//retry/{new_id()}", f"retry-{uuid.uuid4().hex[:8]}"
    scene.shell.run("service", "create", service, "--database", "stock", "--queue", f"{scene.prefix}{queue}")
    name = begin(scene, to_service=service)
    # Tries of all messages begin at the same instants, of which the next one may be near.
    [held] = wait_until(lambda: held_for_long(scene, service), DEADLINE_S, "a try that is not near")
    assert "does not exist" in held["reason"]
    scene.create_queue(queue)
    said = run(scene, "conversation", "retry", name)
    assert f"1 message to {service}: on the way" in said
    [message] = scene.read(f"{scene.prefix}{queue}", 1)
    assert iso_time(message.timestamp()[1]) < held["next_try"]
    assert run(scene, "conversation", "retry", name) == f"conversation {name}: nothing is held\n"


def test_diagnose_looks_at_the_running_instance(scene: ServiceScene) -> None:
    later = f"//later/{new_id()}"
    begin(scene, to_service=later)
    scene.say("MESSAGE", new_id(), b"unknown", is_initiator=False)
    scene.flush()

    def faults() -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for row in map(json.loads, run(scene, "diagnose", "--json", code=1).splitlines()):
            found.setdefault(row["kind"], []).append(f"{row['where']}: {row['problem']}")
        return found

    found = wait_until(
        lambda: seen if {"held messages", "dead letters"} <= (seen := faults()).keys() else None,
        DEADLINE_S,
        "the faults",
    )
    assert found is not None
    [down] = found["program down"]
    assert down.startswith("monitor: no monitor is in the consumer group")
    assert "program stuck" not in found
    assert any("9796: the service is not here" in each for each in found["held messages"])
    assert any("the conversation is not known here" in each for each in found["dead letters"])


def test_diagnose_finds_programs_that_do_not_get_on(broker: SharedBroker, tmp_path: Path) -> None:
    stuck = Scene(broker.bootstrap_servers, tmp_path)
    topics, at_ms = stuck.topics, time.time_ns() // 1_000_000
    instance = RunningInstance(stuck.cluster, topics, pytest.fail, at_ms + 120_000)
    assert [*instance._stuck_transport()] == []
    progress = ProgressRecord(1, 1, {}, iso_time(at_ms))
    stuck.write(topics.service_progress, 0, encode_progress(progress), KEY)
    stuck.decide(1, CleanUp(0, 0, 0))
    found = [*instance._stuck("router"), *instance._stuck_transport()]
    assert [(each.kind, each.where) for each in found] == [("program stuck", "router"), ("program stuck", "transport")]
    assert found[1].problem.startswith("decisions of more than a minute ago are not carried out in 1 partition of")
    assert "(1)" in found[1].problem
    mark = MarkRecord(1, 1, 1, (1, 0), 1, 0, 0)
    stuck.write(topics.service_marks, 1, encoder.encode(mark), MARK)
    assert [*instance._stuck_transport()] == []


def test_without_a_router_the_commands_say_that_nothing_is_shown(broker: SharedBroker, tmp_path: Path) -> None:
    alone = ServiceScene(broker.bootstrap_servers, tmp_path)
    sent = "nothing has been sent to a service yet"
    for words, empty in (
        (("conversation", "list"), f"no endpoints: {sent}"),
        (("transmissions",), f"nothing waits: {sent}"),
    ):
        first, age, rows, *_ = run(alone, *words).splitlines()
        assert first.startswith("no router is in the consumer group")
        assert age.startswith(
            "when a router last committed a batch is unknown, because no router has left a sign of life"
        )
        assert rows == empty
        said = run(alone, *words, "--service", "//nosuch")
        assert said.splitlines()[2] == empty
        assert "There is no service '//nosuch'." in said
        assert run(alone, *words, "--service", "//nosuch", "--json").splitlines() == [first, age]
    assert "`queue-activation queues --bootstrap-servers" not in run(alone, "transmissions")
    begin(alone)
    waits = "\nMessages wait for the router: they were sent after its last batch"
    assert f"\nno endpoints{waits}" in run(alone, "conversation", "list")
    said = run(alone, "transmissions")
    assert f"\nnothing is held{waits}" in said
    assert "`queue-activation queues --bootstrap-servers" in said
    write_rows(alone)
    # They do not wait for anybody who is not there.
    said = run(alone, "conversation", "end", "c", "--timeout", "1h", code=1)
    assert "a router ends 1 endpoint when it reads them: no router is in the consumer group" in said
    said = run(alone, "conversation", "retry", "c", "--timeout", "1h", code=1)
    assert "Nobody would try again: no router is in the consumer group" in said
    assert "no router is in the consumer group" in run(alone, "dead-letters", "--services")
    said = run(alone, "database", "create", "shop")
    assert "takes effect when a router runs: no router is in the consumer group" in said


def write_rows(scene: ServiceScene) -> None:
    """Writes the views of a conversation that holds a message, as a router did that does not run any more."""
    rows = {scene.topics.service_conversations: endpoint(), scene.topics.service_transmissions: transmission()}
    for topic, row in rows.items():
        scene.write(topic, murmur2(b"c", PARTITIONS), msgspec.json.encode(row), b"c/initiator")
