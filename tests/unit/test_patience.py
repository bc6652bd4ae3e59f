"""A wait for a Kafka that does not answer says once which server is tried and for how long, and ends."""

import logging
import re
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from streaming.errors import UserError
from streaming.kafka import access, admin, last_records, patience, topic_follower, transactions
from streaming.kafka.access import WatchfulAdmin
from streaming.kafka.admin import Admin
from streaming.kafka.bootstrap_servers import listening
from streaming.kafka.clients import Cluster
from streaming.kafka.group_coordinator import wait_for_coordinator
from streaming.kafka.patience import Wait
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.kafka.transactions import TransactionalProducer
from tests.support.shell import run_command


@pytest.fixture(autouse=True)
def nothing_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_told", set())
    monkeypatch.setattr(patience, "_NO_CONNECTION_S", 0.2)
    monkeypatch.setattr(patience, "_SILENCE_S", 0.4)


@pytest.fixture
def closed() -> Iterator[str]:
    """Yields a server where nothing listens."""
    with socket.socket() as bound:  # no other program gets its port
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """Yields a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_client_says_once_and_early_that_it_waits_and_in_the_end_why_it_found_nobody(
    caplog: pytest.LogCaptureFixture, closed: str
) -> None:
    for _ in range(2):
        with pytest.raises(UserError, match=f"cannot be reached at {closed} .*Connection refused"):
            Admin(Cluster(closed)).topic_ids(["t"], timeout_s=0.7)
    (line,) = said(caplog)
    assert re.search(rf"^Kafka at {closed} has not answered for \d+ s \(.*failed: Connection refused\)\. ", line)
    assert re.search(r"\. Trying for up to \d+ s more$", line)


@pytest.fixture
def web_server() -> Iterator[str]:
    """Yields a server that answers each connection as no Kafka does."""

    class Refusal(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1024)
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Refusal) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize(
    ("properties", "protocol"),
    [
        ({}, "If Kafka is secured, set {config} (see docs/security.md)."),
        ({"security.protocol": "plaintext"}, "Check also security.protocol in {file}."),
    ],
)
@pytest.mark.parametrize(
    ("fixtures", "servers", "config", "file"),
    [
        (["of_command"], "--bootstrap-servers", "--kafka-config", "the file of --kafka-config"),
        ([], "`bootstrap_servers`", "`kafka_config`", "`kafka_config`"),
    ],
    ids=["command", "program"],
)
@pytest.mark.parametrize("kind", ["silent", "web_server"])
def test_where_something_else_listens_no_broker_is_to_be_started(  # noqa: PLR0917 - pytest passes them by name
    kind: str,
    properties: dict[str, str],
    protocol: str,
    fixtures: list[str],
    servers: str,
    config: str,
    file: str,
    request: pytest.FixtureRequest,
) -> None:
    for fixture in fixtures:
        request.getfixturevalue(fixture)
    protocol = protocol.format(config=config, file=file)
    server = request.getfixturevalue(kind)
    with pytest.raises(UserError) as error:
        Admin(Cluster(server, properties)).topic_ids(["t"], timeout_s=0.7)
    assert re.fullmatch(
        rf"{server} accepts connections, but does not answer as Kafka does \(.+\)\. Check {servers}: another "
        rf"program may listen there, or Kafka hangs or is too busy\. {re.escape(protocol)}",
        str(error.value),
    )


def test_a_kafka_that_begins_to_listen_while_it_is_waited_for_is_not_told_to_refuse_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{bound.getsockname()[1]}"

        def listening_now(servers: str) -> str | None:
            bound.listen()
            return listening(servers)

        monkeypatch.setattr(admin, "listening", listening_now)
        with pytest.raises(UserError) as error:
            Admin(Cluster(server)).topic_ids(["t"], timeout_s=0.7)
    assert re.fullmatch(
        rf"{server} accepts connections now, but before that, a connection failed \(Connect to .* failed: Connection "
        r"refused\)\. If Kafka has just been started there, try again\. Otherwise check `bootstrap_servers`: another "
        r"program may listen there, or Kafka hangs or is too busy\. If Kafka is secured, .*",
        str(error.value),
    )


def test_where_nothing_listens_a_broker_may_be_started(closed: str) -> None:
    with pytest.raises(UserError, match=rf"`queue-activation broker --port {closed[10:]} .*` starts one on this"):
        Admin(Cluster(closed)).topic_ids(["t"], timeout_s=0.7)


def test_all_clients_of_a_command_say_it_once(caplog: pytest.LogCaptureFixture, silent: str) -> None:
    with pytest.raises(UserError):
        Admin(Cluster(silent)).topic_ids(["t"], timeout_s=0.7)
    with pytest.raises(KafkaException):
        wait_for_coordinator(Cluster(silent), "g", 0.7)
    [once] = said(caplog)
    assert re.fullmatch(rf"Kafka at {silent} has not answered for \d+ s\. Trying for up to 10 s more", once)


@pytest.mark.parametrize("client", ["coordinator", "producer", "last records"])
def test_each_wait_says_it(
    client: str, caplog: pytest.LogCaptureFixture, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "CLIENT_TIMEOUT_S", 1.0)
    monkeypatch.setattr(last_records, "_TIMEOUT_S", 1.0)
    monkeypatch.setattr(last_records, "_watermarks", lambda *_: (0, 1))
    waits: dict[str, Callable[[], object]] = {
        "coordinator": lambda: wait_for_coordinator(Cluster(silent), "g", 1.0),
        "producer": lambda: TransactionalProducer(Cluster(silent)),
        "last records": lambda: last_records.last_records(Cluster(silent), "t", 1, 1),
    }
    with pytest.raises((KafkaException, UserError)):
        waits[client]()
    (line,) = said(caplog)
    assert line.startswith(f"Kafka at {silent} has not answered for ")
    assert re.search(r" up to [01] s more$", line)


def test_a_view_gives_up_where_kafka_sends_no_more(
    caplog: pytest.LogCaptureFixture, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Admin, "require_topics", lambda *_: {"t": 1})
    monkeypatch.setattr(topic_follower, "CLIENT_TIMEOUT_S", 1.5)
    sends_no_more = pytest.raises(UserError, match=f"Kafka at {silent} sends no more records")
    with TopicFollower(Cluster(silent), ["t"], Start.BEGINNING) as follower, sends_no_more:
        next(follower.to_end())
    assert len([line for line in said(caplog) if silent in line]) == 1


def test_the_end_of_a_topic_that_is_not_told_is_waited_for_in_words(
    caplog: pytest.LogCaptureFixture, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(topic_follower, "ADMIN_TIMEOUT_S", 1.0)
    monkeypatch.setattr(Admin, "require_topics", lambda *_: {"t": 1})
    consumer = type("Refusing", (), {"get_watermark_offsets": refuse, "close": lambda _: None})
    monkeypatch.setattr(Cluster, "consumer", lambda *_: consumer())
    with pytest.raises(UserError, match="cannot be reached"):
        TopicFollower(Cluster(silent), ["t"], Start.END)
    assert len(said(caplog)) == 1


def test_what_is_answered_again_and_is_lost_again_is_told_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]
    monkeypatch.setattr(patience.time, "monotonic", lambda: now_s[0])
    wait = Wait("kafka-1:9092")
    for now_s[0] in (1.0, 2.0, 11.0):
        wait.look()
    ends = [wait.is_over]
    wait.answered()
    ends.append(wait.is_over)
    now_s[0] = 15.0
    wait.look("kafka-1: Failed to resolve")
    assert ends == [True, False]
    assert said(caplog) == [
        "Kafka at kafka-1:9092 has not answered for 1 s. Trying for up to 9 s more",
        "Kafka at kafka-1:9092 has not answered for 4 s (kafka-1: Failed to resolve). Trying for up to 6 s more",
    ]


def test_a_command_says_it_on_the_standard_error(closed: str, caplog: pytest.LogCaptureFixture) -> None:
    run_command("queues", "--bootstrap-servers", closed, code=2)
    assert len(said(caplog)) == 1


def test_a_request_to_a_coordinator_says_how_long_it_may_take(
    caplog: pytest.LogCaptureFixture, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "_LOST_AFTER_S", 0.7)
    monkeypatch.setattr(Admin, "client_for_group", lambda admin, *_: admin.client)
    times: list[float] = []

    def ask(_: WatchfulAdmin, groups: list[str], *, request_timeout: float, **__: object) -> dict[str, Future[object]]:
        times.append(request_timeout)
        return {group: Future() for group in groups}

    monkeypatch.setattr(WatchfulAdmin, "describe_consumer_groups", ask)
    with pytest.raises(UserError):
        Admin(Cluster(silent)).members("g", 1.0)
    (line,) = said(caplog)
    assert re.search(r" up to (59|60) s more$", line)
    assert times == [3600.0], "the request may time out in the outage, and abort the process after it"


def test_a_refused_connection_is_told_sooner_than_silence(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "_SILENCE_S", 60.0)
    monkeypatch.setattr(patience, "_NO_CONNECTION_S", 0.0)
    wait = Wait("kafka-1:9092")
    wait.look()
    assert said(caplog) == []
    wait.look("Connection refused")
    assert len(said(caplog)) == 1
