"""Two instances, each with a router and a transport of its own: conversations go from one to the other and back."""

import json
import re
import time
import uuid
from collections.abc import Iterator
from itertools import pairwise

import pytest

from streaming.core.conversations.decisions import ERROR
from streaming.core.conversations.held_messages import ASKED_IN_VAIN, NO_PRINCIPAL
from streaming.core.routing.routing_table import BROKER_CONFIGURATION
from streaming.kafka.admin import Admin
from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment
from streaming.wire.envelope import decode_envelope
from streaming.wire.headers import decoded_headers
from streaming.wire.topics import Topics
from tests.support.instance_pair import (
    DEADLINE_S,
    ROUTER_TASKS,
    TRANSPORT_TASKS,
    Pair,
    address_of,
    drops,
    held,
    incoming,
    limit_incoming,
    listed,
    receive,
    running_pair,
    states,
    tell_routes,
)
from tests.support.service_scene import ORDERS, RESERVE, new_id, seen
from tests.support.shared_broker import SharedBroker
from tests.support.spark_application import SparkApplication
from tests.support.third_instance import ThirdInstance
from tests.support.transporting import headers_of
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def pair(broker: SharedBroker, spark: SparkApplication, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with running_pair(broker.bootstrap_servers, spark, tmp_path_factory.mktemp("pair")) as pair:
        yield pair


@pytest.fixture(scope="module", autouse=True)
def away(pair: Pair) -> tuple[ThirdInstance, str]:
    """Returns an instance that is away until it is told to go on, and a conversation whose messages wait for it."""
    third, name = ThirdInstance(pair.north, "//absent", address_of(pair.north)), new_id()
    pair.route(pair.north, "shop", "absent", "//absent", third.address)
    for number in range(3):
        pair.north.say("MESSAGE", name, b"%d" % number, begin=number == 0, to_service="//absent")
    pair.north.flush()
    return third, name


def test_an_error_of_a_program_comes_with_its_code_and_text(pair: Pair) -> None:
    name = new_id()
    pair.north.say("MESSAGE", name, b"none", begin=True)
    pair.north.say("ERROR", name, error_code=7, error_text="no more apples")
    pair.north.flush()
    taken = pair.south.read(pair.south.reserve, 2)
    error = [each for each in taken if headers_of(each)["conversation_id"] == name][-1]
    assert headers_of(error)["message_type_name"] == ERROR
    assert b"<Code>7</Code><Description>no more apples</Description>" in (error.value() or b"")


def test_messages_of_an_instance_whose_transports_are_killed_come_once_and_in_order(pair: Pair) -> None:
    ids = [new_id() for _ in range(20)]
    before = len(pair.south.read(pair.south.reserve, 0))
    for number in range(400):
        more = {"begin": True} if number < len(ids) else {}
        pair.north.say("MESSAGE", ids[number % len(ids)], b"%d" % number, **more)
        if number in {100, 300}:
            pair.north.flush()
            for transport in pair.transports:
                transport.kill()
                transport.start()
    pair.north.flush()
    for transport in pair.transports:
        transport.wait_until_ready()
    messages = pair.south.read(pair.south.reserve, before + 400)
    expected = {name: [(str(i), b"%d" % (n + 20 * i)) for i in range(20)] for n, name in enumerate(ids)}
    assert {name: found for name, found in seen(messages).items() if name in expected} == expected
    wait_until(lambda: not held(pair.north, *ids), DEADLINE_S, "everything acknowledged")


def test_an_instance_that_cannot_be_reached_holds_up_no_other(pair: Pair) -> None:
    pair.route(pair.north, "shop", "nowhere", "//nowhere", "tcp://127.0.0.1:1")
    lost, good = new_id(), new_id()
    pair.north.say("MESSAGE", lost, b"lost", begin=True, to_service="//nowhere")
    pair.north.say("MESSAGE", good, b"good", begin=True)
    pair.north.flush()
    wait_until(lambda: good in seen(pair.south.read(pair.south.reserve, 0)), DEADLINE_S, "the good message")
    [row] = held(pair.north, lost)
    assert row["messages"] == 1
    assert row["reason"] == "no acknowledgement from tcp://127.0.0.1:1 yet"


def test_connections_and_periodic_tasks_can_be_looked_at(pair: Pair) -> None:
    pair.route(pair.north, "shop", "refused", "//refused", "tcp://127.0.0.1:2")
    pair.north.say("MESSAGE", new_id(), b"good", begin=True)
    pair.north.say("MESSAGE", new_id(), b"lost", begin=True, to_service="//refused")
    pair.north.flush()

    def has_failed() -> bool:
        connections = {row["address"]: row for row in listed(pair.north, "connections")}
        return bool(connections.get("tcp://127.0.0.1:2", {}).get("last_error"))

    wait_until(has_failed, DEADLINE_S, "a connection that failed")
    connections = {row["address"]: row for row in listed(pair.north, "connections")}
    good = connections[address_of(pair.south)]
    assert (good["state"], good["last_error"], good["suppressed_until"]) == ("CONNECTED", "", None)
    assert good["messages"] >= 1
    refused = connections["tcp://127.0.0.1:2"]
    assert refused["state"] == "CLOSED"
    assert refused["suppressed_until"] > refused["update_time"]
    tasks = {row["name"]: row for row in listed(pair.north, "maintenance")}
    assert {name: row["every"] for name, row in tasks.items()} == TRANSPORT_TASKS
    assert all(row["runs"] > 0 and row["failures"] == 0 and row["last_run"] for row in tasks.values())
    assert "CONNECT_TO_DESTINATIONS" in pair.north.shell.run("maintenance")
    assert {row["name"]: row["every"] for row in listed(pair.north, "maintenance", "router")} == ROUTER_TASKS


def test_a_message_for_a_third_instance_is_sent_on_and_waits_for_the_connection_to_it(pair: Pair) -> None:
    third = Topics("third-" + pair.south.prefix)
    admin = Admin(pair.south.cluster)
    admin.create_topics([spec for spec in third.service_specs() if spec.name == third.service_incoming], 1, 1)
    south = address_of(pair.south)
    places = {"third": f"tcp://{pair.south.bootstrap_servers}/{third.prefix}", "away": "tcp://127.0.0.1:3"}
    names = {name: new_id() for name in places}
    for name, address in places.items():
        pair.route(pair.north, "shop", name, f"//{name}", south)
        pair.route(pair.south, "msdb", name, f"//{name}", address)
        pair.north.say("MESSAGE", names[name], b"far", begin=True, to_service=f"//{name}")
    pair.north.flush()
    message = pair.south.read(third.service_incoming, 1)[0]
    envelope = decode_envelope(decoded_headers(message))
    assert (message.value(), envelope.conversation_id) == (b"far", names["third"])
    assert (envelope.to_service, envelope.hops_remaining) == ("//third", 9)

    def waiting() -> list[int]:
        rows = {row["address"]: row for row in listed(pair.south, "connections")}
        row = rows.get("tcp://127.0.0.1:3", {"forwarding_messages": 0, "forwarding_bytes": 0})
        return [row["forwarding_messages"], row["forwarding_bytes"]]

    wait_until(lambda: waiting()[0] >= 1, DEADLINE_S, "a message that waits to be sent on")
    assert waiting()[1] > len(b"far")


def test_a_circle_ends_at_its_hop_limit_and_without_forwarding_none_is_sent_on(pair: Pair) -> None:
    port = pair.south.bootstrap_servers.rpartition(":")[2]
    # South does not know this name of its own, so it sends the message to itself until no hop is left.
    pair.route(pair.south, "msdb", "circle", "//circle", f"tcp://localhost:{port}/{pair.south.prefix}")
    pair.route(pair.north, "shop", "circle", "//circle", address_of(pair.south))
    pair.route(pair.north, "msdb", "on", "//on", address_of(pair.south))
    circle, on = new_id(), new_id()
    pair.north.say("MESSAGE", circle, b"round", begin=True, to_service="//circle")
    pair.north.flush()
    receive(pair.north, "MESSAGE", on, 0, to_service="//on")
    wait_until(lambda: 11285 in drops(pair.south, circle), DEADLINE_S, "the end of the circle")
    hops = [decode_envelope(decoded_headers(each)).hops_remaining for each in incoming(pair.south, circle)]
    assert [*dict.fromkeys(hops)] == [*range(10, -1, -1)]
    wait_until(lambda: drops(pair.north, on) == [9792], DEADLINE_S, "forwarding is off")


def test_a_message_that_the_other_instance_never_takes_ends_both_sides(pair: Pair) -> None:
    name, other = new_id(), new_id()
    limit_incoming(pair.south, 150_000)
    try:
        pair.north.say("MESSAGE", name, b"small", begin=True)
        pair.north.say("MESSAGE", name, b"x" * 200_000)
        pair.north.say("MESSAGE", other, b"another one", begin=True)
        pair.north.flush()
        wait_until(lambda: states(pair.north, name) == states(pair.south, name) == {"ER"}, DEADLINE_S, "both ends")
        dead = [
            each for each in pair.north.read(pair.north.topics.service_dead_letters, 1) if each.key() == name.encode()
        ]
        assert len(dead[-1].value() or b"") == 200_000
        wait_until(lambda: states(pair.south, other) == {"CO"}, DEADLINE_S, "the other conversation")
    finally:
        limit_incoming(pair.south, 1_048_588)


def test_an_expired_route_in_use_holds_messages_until_it_is_altered(pair: Pair) -> None:
    name = new_id()
    pair.south.shell.run("service", "create", "//brief", "--database", "stock", "--queue", pair.south.reserve)
    pair.route(pair.north, "shop", "brief", "//brief", address_of(pair.south), "--lifetime", "1h")
    pair.north.say("MESSAGE", name, b"in time", begin=True, to_service="//brief")
    pair.north.flush()

    def bodies() -> list[bytes | None]:
        return [body for _, body in seen(pair.south.read(pair.south.reserve, 0)).get(name, [])]

    def held_by() -> list[int | None]:
        return [row["number"] for row in held(pair.north, name)]

    wait_until(lambda: bodies() == [b"in time"] and not held_by(), DEADLINE_S, "the first message")
    pair.north.shell.run("route", "alter", "brief", "--database", "shop", "--lifetime", "1s")
    expired_s = time.monotonic() + 1
    wait_until(lambda: time.monotonic() > expired_s, DEADLINE_S, "the route's expiry")
    pair.north.say("MESSAGE", name, b"too late", to_service="//brief")
    pair.north.flush()
    wait_until(lambda: held_by() == [9795], DEADLINE_S, "the message that is held")
    pair.north.shell.run("route", "alter", "brief", "--database", "shop", "--lifetime", "1h")
    wait_until(lambda: bodies() == [b"in time", b"too late"], DEADLINE_S, "the second message")


def test_a_second_target_is_told_8495_and_a_repeat_is_acknowledged_again(pair: Pair) -> None:
    name = new_id()
    pair.north.say("MESSAGE", name, b"once", begin=True)
    pair.north.flush()
    wait_until(lambda: name in seen(pair.south.read(pair.south.reserve, 0)), DEADLINE_S, "the message")
    wait_until(lambda: not held(pair.north, name), DEADLINE_S, "its pin")
    second = {"is_initiator": False, "from_service": RESERVE, "to_service": ORDERS, "receive_sequence_number": 1}
    receive(pair.north, "ACK", name, None, **second)
    wait_until(lambda: drops(pair.north, name) == [8495], DEADLINE_S, "the second target")

    first, *others = incoming(pair.south, name)
    told = [decode_envelope(decoded_headers(each)) for each in others]
    # On a slow machine the first message may have been sent again.
    assert [(each.type, each.error_code) for each in told if each.type != "MESSAGE"] == [("ERROR", -8495)]
    acknowledgements = len(incoming(pair.north, name))
    # As if the acknowledgement had been lost.
    headers = [(key, value) for key, value in decoded_headers(first)]
    pair.south.produce(pair.south.topics.service_incoming, first.value(), name.encode(), headers)
    pair.south.flush()
    wait_until(lambda: 11218 in drops(pair.south, name), DEADLINE_S, "the repeat")
    wait_until(lambda: len(incoming(pair.north, name)) > acknowledgements, DEADLINE_S, "another acknowledgement")
    assert seen(pair.south.read(pair.south.reserve, 0))[name] == [("0", b"once")]


def test_two_instances_that_both_took_a_first_message_race_and_the_first_acknowledgement_wins(pair: Pair) -> None:
    north, south = pair.north, pair.south
    third = ThirdInstance(north, "//raced", address_of(north))
    south.shell.run("service", "create", "//raced", "--database", "stock", "--queue", south.reserve)
    there = ["--broker-instance", third.broker_instance]
    pair.route(north, "shop", "raced there", "//raced", third.address, *there)
    names = [new_id() for _ in range(12)]
    for name in names:
        north.say("MESSAGE", name, b"first", begin=True, to_service="//raced")
    north.flush()
    wait_until(lambda: {*third.keys()} >= {name.encode() for name in names}, DEADLINE_S, "the messages in the third")
    # It has them, and has not answered yet. Half of the conversations now go to another instance of the service.
    [here] = [each["broker_instance"] for each in south.listed("database") if each["name"] == "stock"]
    pair.route(north, "shop", "raced here", "//raced", address_of(south), "--broker-instance", here)

    def pinned() -> set[str]:
        taken = {*seen(south.read(south.reserve, 0))} & {*names}
        waiting = {each["conversation_id"] for each in held(north, *names) if third.address in each["reason"]}
        return taken if taken == {*names} - waiting else set()

    won = wait_until(pinned, DEADLINE_S, "conversations that the second instance has acknowledged")
    wait_until(lambda: third.failed(8495) == won, DEADLINE_S, "second targets that are told")
    wait_until(lambda: not held(north, *names), DEADLINE_S, "all pinned")
    assert 0 < len(won) < len(names)
    assert [states(south, name) for name in won] == [{"CO"}] * len(won)
    assert [states(north, name) for name in names] == [{"CO"}] * len(names)


def test_messages_wait_for_a_principal_and_go_to_the_mirror_once_it_claims_to_be_it(pair: Pair) -> None:
    instance, name = str(uuid.uuid4()), new_id()
    copy = ["copy", "--mirroring-role", "MIRROR", "--broker-instance", instance]
    pair.south.shell.run("database", "create", *copy)
    pair.south.shell.run("service", "create", "//copied", "--database", "copy", "--queue", pair.south.reserve)
    mirror = ["--broker-instance", instance, "--mirror-address", address_of(pair.south)]
    pair.route(pair.north, "shop", "mirrored", "//copied", "tcp://127.0.0.1:4", *mirror)
    pair.north.say("MESSAGE", name, b"to the principal", begin=True, to_service="//copied")
    pair.north.flush()

    def roles() -> set[tuple[str, str | None]]:
        records = [json.loads(each.value() or b"") for each in pair.north.read(pair.north.topics.service_reports, 0)]
        return {(each["address"], each.get("role")) for each in records if each["type"] == "ROLE"}

    both = {("tcp://127.0.0.1:4", None), (address_of(pair.south), "MIRROR")}
    wait_until(lambda: roles() >= both, DEADLINE_S, "both answers")
    [row] = held(pair.north, name)
    assert (row["messages"], row["reason"]) == (1, NO_PRINCIPAL)
    assert not incoming(pair.south, name)
    pair.south.shell.run("database", "alter", "copy", "--mirroring-role", "PRINCIPAL")
    there = [("0", b"to the principal")]
    wait_until(lambda: seen(pair.south.read(pair.south.reserve, 0)).get(name) == there, DEADLINE_S, "the new principal")


def test_the_example_of_a_configuration_service_tells_a_missing_route(pair: Pair) -> None:
    north, south = pair.north, pair.south
    questions = north.create_queue("questions")
    north.shell.run("service", "create", BROKER_CONFIGURATION, "--database", "shop", "--queue", questions)
    pair.route(north, "shop", "ask", BROKER_CONFIGURATION, "LOCAL")
    south.shell.run("service", "create", "//told", "--database", "stock", "--queue", south.reserve)
    told, unknown = [new_id(), new_id()], new_id()
    for number, name in enumerate(told):
        north.say("MESSAGE", name, b"%d" % number, begin=True, to_service="//told")
    north.say("MESSAGE", unknown, b"lost", begin=True, to_service="//untold")
    north.flush()
    bodies = [(each.value() or b"").decode() for each in north.read(questions, 2)]
    assert sorted(re.findall("<SERVICE_NAME>([^<]*)</SERVICE_NAME>", "".join(bodies))) == ["//told", "//untold"]
    assert not set(told) & set(seen(south.read(south.reserve, 0)))
    # While the question is pending, a later conversation waits for it as well.
    told.append(new_id())
    north.say("MESSAGE", told[-1], b"2", begin=True, to_service="//told")
    north.flush()
    wait_until(lambda: [each["number"] for each in held(north, told[-1])] == [9770], DEADLINE_S, "the later one")
    tell_routes(north, questions, {"//told": address_of(south)})
    wait_until(lambda: {*told} <= {*seen(south.read(south.reserve, 0))}, DEADLINE_S, "what goes by the new route")

    def is_told_in_vain() -> bool:
        if [each["reason"] for each in held(north, unknown)] == [ASKED_IN_VAIN]:
            return True
        # On a slow machine the service may have been asked again since the error.
        tell_routes(north, questions, {})
        return False

    wait_until(is_told_in_vain, DEADLINE_S, "the other's error")
    north.shell.run("route", "drop", "ask", "--database", "shop")

    def asked() -> int:
        [row] = [row for row in listed(north, "maintenance", "router") if row["name"] == "ASK_FOR_ROUTES"]
        return int(row["done"])

    wait_until(lambda: asked() >= 2, DEADLINE_S, "the questions among the periodic tasks")


def test_watching_shows_what_periodic_tasks_do(pair: Pair) -> None:
    scene = pair.south
    pair.route(scene, "msdb", "gone", "//gone", "tcp://127.0.0.1:5")
    pair.route(pair.north, "shop", "gone", "//gone", address_of(scene))
    scene.shell.run("service", "create", "//no-topic", "--database", "stock", "--queue", f"{scene.prefix}none")
    place = ["--bootstrap-servers", scene.bootstrap_servers, "--topic-prefix", scene.prefix]
    command = [*THIS_COMMAND, "maintenance", "--watch", *place]
    with ChildProcess(command, log_file=scene.folder / "watch.log", env=own_environment()) as watch:
        watch.wait_until_said("RESUME_CLEAN_UP")
        pair.north.say("MESSAGE", new_id(), b"lost", begin=True, to_service="//gone")
        later = new_id()
        for name, service in ((new_id(), "//no-topic"), (later, "//later")):
            sides = {"from_service": RESERVE, "from_database": "stock", "to_service": service}
            scene.say("MESSAGE", name, b"held", begin=True, **sides)
        pair.north.flush()
        scene.flush()
        sent_s, ahead = time.monotonic(), new_id()
        for sequence in (0, 2):
            receive(scene, "MESSAGE", ahead, sequence)
        wait_until(lambda: [row["number"] for row in held(scene, later)] == [9796], DEADLINE_S, "a held message")
        scene.shell.run("service", "create", "//later", "--database", "stock", "--queue", scene.reserve)
        watch.wait_until_said("RECLASSIFY_CONVERSATIONS did 1")
        watch.wait_until_said("DELETE_STALE_MESSAGES did 1")
        # The instant is that of the deletion's report. 10 s, up to 5 s until the notification, and a batch.
        assert time.monotonic() - sent_s > 10
        watch.wait_until_said("RESTART_BROKERS did 1")
        watch.wait_until_said("DELETE_UNFORWARDED_MESSAGES did 1")
        assert watch.stop() == 143, "SIGTERM"


@pytest.mark.timeout(3_000)
def test_an_instance_that_was_away_for_longer_than_all_back_offs_gets_each_message_once(
    pair: Pair, away: tuple[ThirdInstance, str]
) -> None:
    third, name = away

    def longest_wait_s() -> float:
        times = [each.timestamp()[1] / 1_000 for each in pair.north.read(third.topic, 0)]
        return max((after - before for before, after in pairwise(times)), default=0.0)

    wait_until(lambda: longest_wait_s() > 60, 300.0, "the longest back-off, of 64 s")
    wait_until(lambda: third.delivered(name) == [0, 1, 2], DEADLINE_S, "the messages")
    wait_until(lambda: not held(pair.north, name), DEADLINE_S, "all acknowledged")
    assert third.delivered(name) == [0, 1, 2]


def test_a_transport_that_stops_is_shown_no_longer(pair: Pair) -> None:
    transport = pair.transports[1]
    before = {json.loads(line)["instance"] for line in pair.south.shell.run("maintenance", "--json").splitlines()}
    own = listed(pair.south, "maintenance")[0]["instance"]
    transport.stop()
    after = {json.loads(line)["instance"] for line in pair.south.shell.run("maintenance", "--json").splitlines()}
    assert before - after == {own}
