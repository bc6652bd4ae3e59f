"""Programs that talk to services: requests and answers of real processes, through a router and a transport."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from producers.reader import QueueReader
from producers.received_message import ReceivedMessage
from producers.services import ServiceClient
from streaming.core.activation.session_ids import program_of
from streaming.errors import UserError
from streaming.system.jars import broker_jars
from streaming.system.java import find_java
from streaming.system.processes import ChildProcess, own_environment
from streaming.wire.input_records import decode, receives_decoder
from tests.conftest import needed_service_is_missing
from tests.support.command_lines import ROOT
from tests.support.monitors import UNHURRIED
from tests.support.seeds import fresh_seed
from tests.support.service_programs import started
from tests.support.service_scene import ORDERS, RESERVE, ServiceScene, new_id, seen
from tests.support.shared_broker import SharedBroker
from tests.support.spark_application import SparkApplication
from tests.support.waiting import wait_until

SERVICES = ROOT / "examples" / "services"
DEADLINE_S = 60.0
CONVERSATIONS, REQUESTS = 12, 10


@pytest.fixture(scope="module")
def scene(
    broker: SharedBroker, spark: SparkApplication, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceScene]:
    scene = ServiceScene(broker.bootstrap_servers, tmp_path_factory.mktemp("clients"), application=spark)
    scene.define()
    with scene.running(scene.program("router", *UNHURRIED), scene.program("transport")):
        yield scene


@pytest.fixture
def client(scene: ServiceScene) -> Iterator[ServiceClient]:
    with ServiceClient(scene.bootstrap_servers, "shop", topic_prefix=scene.prefix) as client:
        yield client


def reader_of(scene: ServiceScene, queue: str) -> QueueReader:
    return QueueReader(scene.bootstrap_servers, queue, topic_prefix=scene.prefix)


def receive_one(reader: QueueReader) -> ReceivedMessage:
    """Receives a message, and commits it."""

    def look() -> list[ReceivedMessage]:
        with reader.receive(1, 1.0) as messages:
            return messages

    return wait_until(look, DEADLINE_S, "a message")[0]


def in_python() -> list[str]:
    return [sys.executable, str(SERVICES / "stock.py")]


def in_java() -> list[str]:
    java = find_java()
    if not java.with_name("javac").exists():
        needed_service_is_missing(FileNotFoundError("a Java compiler"))
    return [str(java), "-XX:TieredStopAtLevel=1", "-cp", f"{broker_jars()[0].parent}/*", str(SERVICES / "Answer.java")]


def environment_of(scene: ServiceScene) -> dict[str, str]:
    return {
        **own_environment(),
        "QUEUE_ACTIVATION_BOOTSTRAP_SERVERS": scene.bootstrap_servers,
        "QUEUE_ACTIVATION_TOPIC_PREFIX": scene.prefix,
    }


@pytest.mark.parametrize("stock", [in_python, in_java])
def test_a_program_of_the_guide_ends_if_its_queue_has_no_topic(
    scene: ServiceScene, stock: Callable[[], list[str]]
) -> None:
    command, environment = [*stock(), "no-such-queue"], environment_of(scene)
    done = subprocess.run(command, env=environment, timeout=DEADLINE_S, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "error: Queue 'no-such-queue' has no topic." in done.stderr


@pytest.mark.parametrize("stock", [in_python, in_java])
def test_the_programs_of_the_guide_order_and_answer(scene: ServiceScene, stock: Callable[[], list[str]]) -> None:
    session_id = stock.__name__
    environment = environment_of(scene) | {"QUEUE_ACTIVATION_SESSION_ID": session_id}
    before = len(scene.read(scene.reserve, 0))
    order = subprocess.Popen([sys.executable, str(SERVICES / "order.py"), "7"], env=environment, stdout=subprocess.PIPE)
    scene.read(scene.reserve, before + 1)
    subprocess.run([*stock(), scene.reserve], env=environment, timeout=DEADLINE_S, check=True)
    answers, _ = order.communicate(timeout=DEADLINE_S)
    assert (answers, order.returncode) == (b"reserved: 7 chairs\n", 0)
    reports = reports_of(scene, session_id)
    assert ("RECEIVE", "MESSAGES") in reports
    assert reports[-2:] == [("RECEIVE", "EMPTY"), ("SESSION_ENDED", None)]


def reports_of(scene: ServiceScene, program_id: str) -> list[tuple[str, str | None]]:
    """Returns what a program has reported to the monitor about the queue of RESERVE; each record must be valid."""
    found = []
    for message in scene.read(scene.topics.receives, 0):
        value = message.value() or b""
        decode(receives_decoder, message.key(), value, len(value))
        record = json.loads(value)
        if (record["queue"], program_of(record["session_id"])) == (scene.reserve, program_id):
            found.append((record["type"], record.get("result")))
    return found


def test_a_timer_comes_back_and_its_conversation_goes_on(scene: ServiceScene, client: ServiceClient) -> None:
    conversation = client.begin(ORDERS, RESERVE)
    conversation.set_timer(0.1)
    with client.reader(ORDERS) as orders:
        timer = receive_one(orders)
        assert (timer.kind, timer.sequence_number) == ("TIMER", None)
        with pytest.raises(RuntimeError, match="only in its receive block"):
            timer.conversation.send(b"late")
    conversation.send(b"after the timer", message_type="//late", headers=[("trace", b"1")])
    with reader_of(scene, scene.reserve) as reserve:
        message = receive_one(reserve)
    assert (message.value, message.message_type, message.sequence_number) == (b"after the timer", "//late", 0)
    assert ("trace", b"1") in message.headers
    again = client.resume(conversation.conversation_id, ORDERS, RESERVE)
    again.end_with_error(7, "sold out & <closed>")
    with reader_of(scene, scene.reserve) as reserve:
        error = receive_one(reserve)
    assert (error.kind, error.error) == ("ERROR", (7, "sold out & <closed>"))


def test_a_block_that_raises_says_nothing(scene: ServiceScene, client: ServiceClient) -> None:
    with client.transaction():
        client.begin(ORDERS, RESERVE).send(b"1")
    with reader_of(scene, scene.reserve) as reserve, client.reader(ORDERS) as orders:

        def fail() -> bool:
            with reserve.receive(1, 1.0) as messages:
                for message in messages:
                    message.conversation.send(b"never")
                    message.conversation.begin(RESERVE).send(b"never")
                    raise ZeroDivisionError
            return False

        with pytest.raises(ZeroDivisionError):
            wait_until(fail, DEADLINE_S, "a message")
        with reserve.receive(1, 5.0) as messages:
            [message] = messages
            message.conversation.send(b"once")
            message.conversation.begin(ORDERS).send(b"related")
            message.conversation.end()
        values = [receive_one(orders) for _ in range(3)]
    assert sorted((each.value, each.kind) for each in values) == [
        (b"", "END"),
        (b"once", "MESSAGE"),
        (b"related", "MESSAGE"),
    ]


def test_a_message_for_a_side_that_has_ended_gets_no_answer_and_stops_no_reader(
    scene: ServiceScene, client: ServiceClient
) -> None:
    conversation = client.begin(ORDERS, RESERVE)
    with client.transaction():
        conversation.send(b"1")
        conversation.send(b"2")
    with reader_of(scene, scene.reserve) as reserve, client.reader(ORDERS) as orders:
        answered: list[bytes] = []

        def answer() -> bool:
            with reserve.receive(10, 1.0) as messages:
                for message in messages:
                    message.conversation.send(message.value)
                    message.conversation.end()
                answered.extend(message.value for message in messages)
            return len(answered) == 2

        wait_until(answer, DEADLINE_S, "both messages")
        messages = [receive_one(orders) for _ in range(2)]
        assert [(each.kind, each.value) for each in messages] == [("MESSAGE", b"1"), ("END", b"")]
    conversation.end()

    def refused() -> list[dict[str, Any]]:
        letters = map(json.loads, scene.shell.run("dead-letters", "--services", "--json").splitlines())
        return [letter for letter in letters if letter["key"] == conversation.conversation_id]

    wait_until(lambda: len(refused()) == 2, DEADLINE_S, "the dead letters")
    assert [(letter["number"], json.loads(letter["envelope"])["type"]) for letter in refused()] == [
        (8429, "MESSAGE"),
        (8429, "END"),
    ]
    assert "does not allow MESSAGE (8429)" in scene.shell.run("dead-letters", "--services")
    said = scene.shell.run("dead-letters")
    assert "`queue-activation dead-letters --services --bootstrap-servers" in said
    assert said.endswith("` shows those of services\n")


def test_answers_come_once_and_in_order_although_a_reader_is_killed_before_its_commit(
    scene: ServiceScene, client: ServiceClient
) -> None:
    queue = scene.create_queue("echo", partitions=2)
    scene.shell.run("service", "create", "//echo", "--database", "stock", "--queue", queue)
    back = scene.create_queue("back")
    scene.shell.run("service", "create", "//back", "--database", "shop", "--queue", back)
    # The first one has its partitions before the second one starts, so it surely gets messages.
    readers = [started(scene, "answer", 0, queue, "20")]
    try:
        readers[0].wait_until_said("answered 0")
        readers.append(started(scene, "answer", 1, queue, "0"))
        conversations = [client.begin("//back", "//echo") for _ in range(CONVERSATIONS)]
        for number in range(REQUESTS):
            with client.transaction():
                for conversation in conversations:
                    conversation.send(b"%d" % number)
        readers[0].wait_until_said("hanging")
        os.kill(readers[0].pid, signal.SIGKILL)
        readers[0].wait(10)
        readers.append(started(scene, "answer", 2, queue, "0"))
        answers = seen(scene.read(back, CONVERSATIONS * REQUESTS))
        in_order = [(str(number), b"%d" % number) for number in range(REQUESTS)]
        assert answers == {each.conversation_id: in_order for each in conversations}
    finally:
        kill_all(readers)


def test_a_sender_that_is_killed_in_its_transaction_has_sent_all_of_it_or_nothing(scene: ServiceScene) -> None:
    seed = fresh_seed("SENDER_KILLS_SEED")
    print(f"SENDER_KILLS_SEED={seed}")  # noqa: T201  (shown if the test fails)
    moments = random.Random(seed)  # noqa: S311  (no secret)
    queue = scene.create_queue("pairs")
    scene.shell.run("service", "create", "//pairs", "--database", "stock", "--queue", queue)
    begun: set[str] = set()
    sent: set[str] = set()
    for number in range(3):
        sender = started(scene, "send_pairs", number, "//pairs")
        try:
            sender.wait_until_said("sent ")
            with pytest.raises(subprocess.TimeoutExpired):
                sender.wait(moments.random() / 2)
        finally:
            kill_all([sender])
        lines = (scene.folder / f"send_pairs-{number}.log").read_text().splitlines()
        begun |= {line.removeprefix("begun ") for line in lines if line.startswith("begun ")}
        sent |= {line.removeprefix("sent ") for line in lines if line.startswith("sent ")}
    found: dict[str, list[tuple[str | None, bytes | None]]] = {}

    def is_complete() -> bool:
        # A sender may have been killed between its commit and its line. So there may be more than was `sent`.
        nonlocal found
        found = seen(scene.read(queue, 0))
        return sent <= found.keys() and all(each == [("0", b"0"), ("1", b"1")] for each in found.values())

    wait_until(is_complete, DEADLINE_S, "both messages of each conversation")
    assert found.keys() <= begun


def kill_all(processes: list[ChildProcess]) -> None:
    for process in processes:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait(10)


def test_a_reader_says_why_no_answer_comes(client: ServiceClient, caplog: pytest.LogCaptureFixture) -> None:
    later = f"//later/{new_id()}"
    order = client.begin(ORDERS, later)
    order.send(b"3 chairs")
    with client.reader(ORDERS) as reader:
        wait_for_warning(reader, caplog, f"the router holds messages to {later} since")
    assert "9796: the service is not here" in caplog.text
    assert f"`queue-activation conversation show {order.conversation_id} " in caplog.text
    order.end()


def test_a_reader_says_that_no_router_runs(
    broker: SharedBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alone = ServiceScene(broker.bootstrap_servers, tmp_path)
    row = json.dumps({"queue": alone.orders}).encode()
    alone.write(alone.topics.service_definitions, 0, row, json.dumps(["service", "shop", ORDERS]).encode())
    with (
        ServiceClient(alone.bootstrap_servers, "shop", topic_prefix=alone.prefix) as client,
        client.reader(ORDERS) as reader,
    ):
        client.begin(ORDERS, RESERVE).send(b"3 chairs")
        wait_for_warning(reader, caplog, "no answer yet, because no router is in the consumer group")
    assert "Start all that services need: `queue-activation run " in caplog.text


def wait_for_warning(reader: QueueReader, caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Receives, as a program that waits for an answer does, until the log has a text."""

    def is_told() -> bool:
        with reader.receive(max_messages=1, timeout=1.0):
            return text in caplog.text

    wait_until(is_told, DEADLINE_S, text)


def test_mistakes_are_told_before_anything_is_sent(client: ServiceClient, scene: ServiceScene) -> None:
    with pytest.raises(UserError, match="knows no service '//none' of database 'shop'"):
        client.reader("//none")
    with pytest.raises(UserError, match="knows no service '//shop/odrers' of database 'shop'"):
        client.begin("//shop/odrers", RESERVE)
    with pytest.raises(UserError, match="conversation is not valid: to_service: Expected `str` of length"):
        client.begin(ORDERS, "x" * 257).send(b"")
    with pytest.raises(UserError, match="error is 0; it must be positive"):
        client.begin(ORDERS, RESERVE).end_with_error(0, "")
    with pytest.raises(UserError, match="no topic 'none-service-messages'"):
        ServiceClient(scene.bootstrap_servers, "shop", topic_prefix="none-")
    with client.transaction(), pytest.raises(RuntimeError, match="A transaction is open"), client.transaction():
        pass
