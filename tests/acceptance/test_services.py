"""Conversations of services, within an instance and between two, each with a router and a transport of its own."""

from collections.abc import Iterator

import pytest

from streaming.core.conversations.decisions import END_DIALOG
from tests.support.instance_pair import DEADLINE_S, Pair, held, running_pair, states
from tests.support.service_scene import ORDERS, RESERVE, new_id, seen
from tests.support.shared_broker import SharedBroker
from tests.support.spark_application import SparkApplication
from tests.support.transporting import headers_of
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def pair(broker: SharedBroker, spark: SparkApplication, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with running_pair(broker.bootstrap_servers, spark, tmp_path_factory.mktemp("pair")) as pair:
        yield pair


def test_messages_to_a_service_that_is_not_there_yet_are_held_with_a_reason_and_arrive_in_order(pair: Pair) -> None:
    scene, ids = pair.north, [new_id() for _ in range(20)]
    for number in range(200):
        more = {"begin": True} if number < len(ids) else {}
        scene.say("MESSAGE", ids[number % len(ids)], b"%d" % number, to_service="//later", **more)
    scene.flush()
    wait_until(lambda: sum(row["messages"] for row in held(scene, *ids)) == 200, DEADLINE_S, "200 held messages")
    assert {row["number"] for row in held(scene, *ids)} == {9796}
    later = scene.create_queue("later")
    scene.shell.run("service", "create", "//later", "--database", "shop", "--queue", later)
    messages = scene.read(later, 200)
    expected = {name: [(str(i), b"%d" % (n + 20 * i)) for i in range(10)] for n, name in enumerate(ids)}
    assert seen(messages) == expected
    wait_until(lambda: not held(scene, *ids), DEADLINE_S, "nothing held")


def test_a_request_to_another_instance_is_answered(pair: Pair) -> None:
    name = new_id()
    pair.north.say("MESSAGE", name, b"3 apples", begin=True, message_type_name="//stock/Reserve")
    pair.north.flush()
    [request] = pair.south.read(pair.south.reserve, 1)
    headers = headers_of(request)
    assert request.value() == b"3 apples"
    assert (headers["service"], headers["from_service"]) == (RESERVE, ORDERS)
    assert headers["message_type_name"] == "//stock/Reserve"
    assert (headers["conversation_id"], headers["message_sequence_number"]) == (name, "0")
    pair.south.say("MESSAGE", name, b"reserved", is_initiator=False)
    pair.south.say("END", name, is_initiator=False)
    pair.south.flush()
    answer, end = pair.north.read(pair.north.orders, 2)
    assert (answer.value(), headers_of(answer)["is_initiator"]) == (b"reserved", "false")
    assert headers_of(end)["message_type_name"] == END_DIALOG
    pair.north.say("END", name)
    pair.north.flush()
    both = pair.north, pair.south
    wait_until(lambda: all(states(each, name) == {"CD"} for each in both), DEADLINE_S, "closed endpoints")
    wait_until(lambda: not any(held(each, name) for each in both), DEADLINE_S, "everything acknowledged")
