"""Services from end to end: programs send to a name, and messages come into the right queue, once and in order."""

from collections.abc import Iterator

import pytest

from streaming.core.conversations.decisions import END_DIALOG, ERROR
from tests.support.monitors import UNHURRIED
from tests.support.service_scene import ORDERS, RESERVE, ServiceScene, new_id
from tests.support.shared_broker import SharedBroker
from tests.support.spark_application import SparkApplication
from tests.support.transporting import headers_of
from tests.support.waiting import wait_until

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def scene(
    broker: SharedBroker, spark: SparkApplication, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceScene]:
    scene = ServiceScene(broker.bootstrap_servers, tmp_path_factory.mktemp("services"), application=spark)
    scene.define()
    queries = [scene.program(name, *UNHURRIED) for name in ("router", "monitor")]
    with scene.running(*queries, scene.program("transport")):
        yield scene


def test_a_request_and_its_answer_activate_both_queues(scene: ServiceScene) -> None:
    name = new_id()
    scene.say("MESSAGE", name, b"3 apples", begin=True, message_type_name="//stock/Reserve")
    scene.flush()
    [request] = scene.read(scene.reserve, 1)
    headers = headers_of(request)
    assert request.value() == b"3 apples"
    assert (headers["service"], headers["from_service"]) == (RESERVE, ORDERS)
    scene.say("MESSAGE", name, b"reserved", is_initiator=False)
    scene.say("END", name, is_initiator=False)
    scene.flush()
    answer, end = scene.read(scene.orders, 2)
    assert (answer.value(), headers_of(answer)["is_initiator"]) == (b"reserved", "false")
    assert headers_of(end)["message_type_name"] == END_DIALOG
    both = {scene.orders.encode(), scene.reserve.encode()}
    wait_until(lambda: both <= {m.key() for m in scene.read(scene.topics.activations, 0)}, DEADLINE_S, "activations")
    scene.say("END", name)
    scene.flush()
    ends = {f"{name}/initiator": "CD", f"{name}/target": "CD"}
    wait_until(lambda: states(scene) == ends, DEADLINE_S, "closed endpoints")


def states(scene: ServiceScene) -> dict[str, str]:
    return {key: row["state"] for key, row in scene.rows(scene.topics.service_conversations).items()}


def test_a_dropped_service_ends_its_conversations_with_an_error(scene: ServiceScene) -> None:
    name, gone = new_id(), scene.create_queue("gone")
    scene.shell.run("service", "create", "//gone", "--database", "stock", "--queue", gone)
    scene.say("MESSAGE", name, b"1", begin=True, to_service="//gone")
    scene.flush()
    scene.read(gone, 1)
    scene.shell.run("service", "drop", "//gone", "--database", "stock")
    errors = wait_until(
        lambda: [m for m in scene.read(scene.orders, 0) if headers_of(m)["conversation_id"] == name],
        DEADLINE_S,
        "an error",
    )
    assert [headers_of(message)["message_type_name"] for message in errors] == [ERROR]
    assert b"-8470" in (errors[0].value() or b"")


def test_what_an_endpoint_refuses_is_a_dead_letter_with_its_number(scene: ServiceScene) -> None:
    name = new_id()
    scene.say("MESSAGE", name, b"nobody", is_initiator=False)
    scene.flush()
    letters = wait_until(
        lambda: [m for m in scene.read(scene.topics.service_dead_letters, 0) if m.key() == name.encode()],
        DEADLINE_S,
        "a dead letter",
    )
    assert letters[0].value() == b"nobody"
    assert headers_of(letters[0])["number"] == "8426"
