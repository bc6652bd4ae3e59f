"""The programs of the examples end at Ctrl-C or SIGTERM without a traceback, and close their clients before."""

import ast
import importlib.util
import itertools
import os
import runpy
import signal
import socket
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import Mock

import confluent_kafka
import kafka
import pytest

import producers
from producers import received_message
from producers.conversations import Statements
from streaming.daemons.activator.config import Config
from streaming.errors import UserError
from streaming.system import toml_file
from tests.support.command_lines import ROOT

CTRL_C = 130
FOLDER = ROOT / "examples" / "services"
OBSERVE = ROOT / "examples" / "observe"


class Client:
    """A reader or a client of services, at whose first RECEIVE the user presses Ctrl-C."""

    closed: ClassVar[list[str]] = []
    has_found_nothing = False

    def __init__(self, *_: Any, **__: Any) -> None:
        """Takes what the real ones take."""

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.closed.append("" if kind is None else kind.__name__)

    conversation_id = "c"

    def begin(self, *_: Any, **__: Any) -> "Client":
        return self

    def reader(self, _service: str) -> "Client":
        return self

    def send(self, _body: bytes) -> None:
        """Sends nothing."""

    def receive(self, **_: Any) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.py")))
def test_an_example_ends_at_ctrl_c_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any, name: str
) -> None:
    addresses = tmp_path / "addresses.json"
    addresses.write_text("{}")
    monkeypatch.setattr(producers, "ServiceClient", Client)
    monkeypatch.setattr(producers, "QueueReader", Client)
    monkeypatch.setattr(Client, "closed", [])
    monkeypatch.setattr(sys, "argv", [name, *([str(addresses)] if name == "configuration.py" else [])])
    # Who has ordered waits for an answer, and Ctrl-C ends that in vain. The readers have done what they had begun.
    with pytest.raises(SystemExit) if name == "order.py" else nullcontext() as ended:
        runpy.run_path(str(FOLDER / name), run_name="__main__")
    assert set(Client.closed) == {"KeyboardInterrupt"}
    said = "ordered 3 chairs in the conversation c\n" if name == "order.py" else ""
    assert capsys.readouterr() == ("", said)
    assert ended is None or ended.value.code == CTRL_C


@pytest.mark.parametrize("name", ["README.md", "docs/guide/services.md"])
def test_the_program_of_services_that_a_document_shows_ends_at_ctrl_c_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(producers, "ServiceClient", Client)
    monkeypatch.setattr(Client, "closed", [])
    [program] = [
        block.split("```")[0]
        for block in (ROOT / name).read_text().split("```python\n")[1:]
        if "except KeyboardInterrupt" in block.split("```")[0]
    ]
    with pytest.raises(SystemExit) as ended:
        exec(program, {})  # noqa: S102 - as a reader would run it
    assert (ended.value.code, set(Client.closed)) == (CTRL_C, {"KeyboardInterrupt"})


def test_the_first_program_that_the_readme_shows_says_what_to_do_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise UserError("Kafka cannot be reached. Check --bootstrap-servers.")

    program = (ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]
    for name in ("create_queue_topics", "QueueProducer"):
        monkeypatch.setattr(producers, "create_queue_topics", lambda *_, **__: None)
        monkeypatch.setattr(producers, name, refuse)
        with pytest.raises(SystemExit) as ended:
            exec(program, {})  # noqa: S102 - as a reader would run it
        assert ended.value.code == "error: Kafka cannot be reached. Check --bootstrap-servers."


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.py")))
def test_an_example_says_what_to_do_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, name: str
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise UserError("There is no topic. Create it.")

    addresses = tmp_path / "addresses.json"
    addresses.write_text("{}")
    monkeypatch.setattr(Client, "__init__", refuse)
    monkeypatch.setattr(producers, "ServiceClient", Client)
    monkeypatch.setattr(producers, "QueueReader", Client)
    monkeypatch.setattr(sys, "argv", [name, *([str(addresses)] if name == "configuration.py" else [])])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(FOLDER / name), run_name="__main__")
    assert ended.value.code == "error: There is no topic. Create it."


def test_a_message_that_belongs_to_no_conversation_does_not_stop_the_service(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Reader(Client):
        def receive(self, **_: Any) -> Any:
            self.has_found_nothing = True
            statements = Statements(lambda: None)
            return nullcontext([received_message.ReceivedMessage(b"hello", None, (), 0, 0, 0, statements)])

    monkeypatch.setattr(producers, "QueueReader", Reader)
    monkeypatch.setattr(sys, "argv", ["stock.py"])
    runpy.run_path(str(FOLDER / "stock.py"), run_name="__main__")
    assert capsys.readouterr() == ("skipped, as it is of no conversation: hello\n", "")


def test_who_waits_for_an_answer_is_led_to_the_cause_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Waiting(Client):
        looks = itertools.count()

        def receive(self, **_: Any) -> Any:
            if next(self.looks) == 3:
                raise KeyboardInterrupt
            return nullcontext([])

    monkeypatch.setattr(producers, "ServiceClient", Waiting)
    monkeypatch.setattr(sys, "argv", ["order.py"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(FOLDER / "order.py"), run_name="__main__")
    _, told = capsys.readouterr().err.splitlines()
    assert told == "still no answer. If no line above says why, run `queue-activation diagnose`"
    assert len(told) < 80


class PlainConsumer:
    """A consumer of confluent-kafka with one message, at which the user asks the program to stop, if SIGNAL is set."""

    signal: ClassVar[int | None] = None
    calls: ClassVar[list[str]] = []
    value: Any = staticmethod(lambda: b"an order")
    error = staticmethod(lambda: None)

    def __init__(self, *_: Any, **__: Any) -> None:
        self.has_sent = False

    def subscribe(self, topics: list[str]) -> None:
        self.calls.append(f"subscribe {topics}")

    def poll(self, _: float) -> "PlainConsumer | None":
        if self.has_sent:
            return None
        self.has_sent = True
        if self.signal is not None:
            os.kill(os.getpid(), self.signal)
        return self

    def store_offsets(self, _: "PlainConsumer") -> None:
        self.calls.append("done")

    def close(self) -> None:
        self.calls.append("close")


class KafkaPythonConsumer(PlainConsumer):
    """The same consumer with the methods of kafka-python."""

    value = b"an order"

    def poll(self, timeout_ms: float) -> Any:
        message = super().poll(timeout_ms)
        return {} if message is None else {"orders-0": [message]}


@pytest.fixture
def plain(kept_signals: None, monkeypatch: pytest.MonkeyPatch) -> type[PlainConsumer]:  # noqa: ARG001
    monkeypatch.setattr(confluent_kafka, "Consumer", PlainConsumer)
    monkeypatch.setattr(kafka, "KafkaConsumer", KafkaPythonConsumer)
    monkeypatch.setattr(PlainConsumer, "calls", [])
    monkeypatch.setattr(sys, "argv", ["program", "orders", "orders-readers"])
    return PlainConsumer


@pytest.mark.parametrize("name", ["consumer.py", "endless_consumer.py"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_plain_consumer_that_is_asked_to_stop_finishes_its_message_and_leaves_its_group(
    plain: type[PlainConsumer],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    number: int,
) -> None:
    monkeypatch.setattr(plain, "signal", number)
    runpy.run_path(str(OBSERVE / name), run_name="__main__")
    assert capsys.readouterr() == ("an order\n", "")
    assert plain.calls[-1] == "close"


def test_a_plain_consumer_exits_when_it_has_found_nothing_for_some_time(
    plain: type[PlainConsumer], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = itertools.count(step=3.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    runpy.run_path(str(OBSERVE / "consumer.py"), run_name="__main__")
    assert capsys.readouterr() == ("an order\n", "")
    assert plain.calls == ["subscribe ['orders']", "done", "close"]


def plain_producer(monkeypatch: pytest.MonkeyPatch, servers: str) -> ModuleType:
    """Returns the plain producer as a module, with less patience."""
    monkeypatch.setenv("QUEUE_ACTIVATION_BOOTSTRAP_SERVERS", servers)
    spec = importlib.util.spec_from_file_location("plain_producer", OBSERVE / "producer.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "TIMEOUT_S", 0.3)
    return module


@pytest.mark.parametrize("is_open", [True, False])
def test_a_plain_producer_says_in_words_which_kafka_does_not_answer_and_ends(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], is_open: bool
) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if is_open:
            server.listen()
        servers = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(SystemExit) as ended:
            plain_producer(monkeypatch, servers).main("orders", "hello")
    assert str(ended.value.code).startswith(f"error: Kafka at {servers} does not answer. Start it, or set ")
    assert capfd.readouterr() == ("", ""), "the client writes no lines of its own"


def test_a_plain_producer_ends_if_kafka_has_gone_after_the_first_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = plain_producer(monkeypatch, "127.0.0.1:1")
    exists = confluent_kafka.KafkaException(confluent_kafka.KafkaError(36))
    topics = {"orders": SimpleNamespace(result=Mock(side_effect=exists))}
    monkeypatch.setattr(producer, "AdminClient", lambda _: SimpleNamespace(create_topics=lambda *_, **__: topics))
    with pytest.raises(SystemExit) as ended:
        producer.main("orders", "hello")
    assert str(ended.value.code).startswith("error: Kafka at 127.0.0.1:1 does not answer. ")


@pytest.mark.parametrize("path", sorted(OBSERVE.glob("*.py")), ids=lambda path: path.name)
def test_a_plain_program_imports_nothing_of_this_project(path: Path) -> None:
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names])
    }
    assert imported <= {*sys.stdlib_module_names, "confluent_kafka", "kafka"}


def test_the_file_for_plain_consumers_starts_the_one_that_exits() -> None:
    [entry] = toml_file.load(OBSERVE / "activator.toml", Config).programs
    program, topic, group = entry.words[1:]
    assert (ROOT / program).is_file()
    assert (group, [topic]) == (entry.group, entry.topics)
