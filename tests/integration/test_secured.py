"""A Kafka with users, TLS and ACLs: the rights in docs/security.md are enough and needed, and no secret leaks."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from producers.producer import QueueProducer
from producers.queue_topics import create_queue_topics
from streaming.cli.main import main
from streaming.daemons.monitor.sole_monitor import GROUP_ID, MONITOR
from streaming.daemons.query.sole_program import SoleProgram
from streaming.errors import UserError
from streaming.kafka import admin
from streaming.kafka.last_records import last_records
from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment
from streaming.wire.topics import Topics
from tests.support import verbose_monitor
from tests.support.checked_producer import CheckedProducer
from tests.support.documented_acls import Right, documented_rights, rights_of
from tests.support.secured_broker import SUPER_USER, SecuredBroker, make_certificate, secured_broker
from tests.support.spark_application import SharedProgram, SparkApplication
from tests.support.waiting import wait_until

DEADLINE_S = 90
PREFIX = "s-"
TOPICS = Topics(PREFIX)
# ORDERS has external activation, PAYMENTS has internal activation.
ORDERS, PAYMENTS = "orders", "payments"
# User -> clients, whose rows of the table of ACLs the user gets.
USERS = {
    "admin": ["topics"],
    "monitor": ["monitor"],
    "sender": ["sender"],
    "reader": ["reader"],
    "activator": ["activator"],
    "host": ["host"],
    "router": ["router"],
    "watcher": ["watch", "queues", "tasks"],
    "definer": ["definitions"],
    "loader": ["workload"],
    "nobody": [],
}
# Command -> the user that runs it.
COMMANDS = {
    "topics": "admin",
    "monitor": "monitor",
    "read": "reader",
    "activator": "activator",
    "host": "host",
    "router": "router",
    "watch": "watcher",
    "queues": "watcher",
    "tasks": "watcher",
    "workload": "loader",
}


@pytest.fixture(scope="module")
def secured(java_and_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:  # noqa: ARG001
    """Runs a broker with all users, the queues' topics, and the monitor's topics, which `topics` creates as `admin`."""
    with secured_broker(tmp_path_factory.mktemp("secured")) as broker:
        for user, clients in USERS.items():
            broker.add_user(user)
            rights = [right for client in clients for right in rights_of(client)]
            rights += [right for right in documented_rights() if right.client.startswith(f"`{user}`, to ")]
            acls = {right.acl(user, PREFIX, queue) for right in rights for queue in (ORDERS, PAYMENTS)}
            if acls:
                broker.allow(list(acls))
        root = broker.cluster(SUPER_USER)
        create_queue_topics(
            broker.bootstrap_servers, [ORDERS, PAYMENTS], partitions=1, replication_factor=1, kafka_config=root.config
        )
        created = subprocess.run(
            command(broker, "topics", broker.client_file("admin")), capture_output=True, text=True, check=False
        )
        assert (created.returncode, created.stderr) == (0, ""), created
        yield broker


def command(broker: SecuredBroker, name: str, client_file: Path, *more: str) -> list[str]:
    connection = ["--bootstrap-servers", broker.bootstrap_servers, "--kafka-config", str(client_file)]
    return [*THIS_COMMAND, name, *connection, "--topic-prefix", PREFIX, *more]


class Programs:
    """Programs that run until the test ends, each with a log, in a folder that is searched for secrets.

    The log and the scratch files of the Spark application, which runs monitor and router, are searched, too.
    """

    def __init__(self, broker: SecuredBroker, folder: Path, stack: ExitStack, spark: SparkApplication) -> None:
        self.broker = broker
        self.folder = folder
        self._stack = stack
        self._spark = spark

    def start(self, name: str, ready: str, *more: str) -> ChildProcess | SharedProgram:
        log_file = self.log_file(name)
        arguments = command(self.broker, name, self.broker.client_file(COMMANDS[name]), *more)
        process: ChildProcess | SharedProgram
        if name in ("monitor", "router"):
            process = self._spark.run(arguments, log_file)
        else:
            process = ChildProcess(arguments, log_file=log_file, env=own_environment())
        self._stack.enter_context(process)
        process.wait_until_said(ready)
        return process

    def log_file(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def log(self, name: str) -> str:
        return self.log_file(name).read_text()

    def has_said(self, name: str, line: str) -> bool:
        return line in self.log(name).splitlines()

    def has_seen_an_exit(self, name: str) -> bool:
        return "exited" in self.log(name)

    def run(self, name: str, *more: str) -> str:
        arguments = command(self.broker, name, self.broker.client_file(COMMANDS[name]), *more)
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def rows(self) -> dict[str, dict[str, Any]]:
        return {row["queue"]: row for row in map(json.loads, self.run("queues", "--json").splitlines())}

    def assert_no_secret(self) -> None:
        """Fails if a password is in a file of the folder, or in the command line or environment of a process."""
        secrets = {password.encode() for password in self.broker.passwords.values()}
        folders = self.folder, self._spark.folder
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        places = [*files, *Path("/proc").glob("[0-9]*/cmdline"), *Path("/proc").glob("[0-9]*/environ")]
        for path in places:
            try:
                content = path.read_bytes()
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            assert not any(secret in content for secret in secrets), f"a password is in {path}"
        assert files


def send(broker: SecuredBroker, queue: str, value: bytes) -> None:
    config = broker.cluster("sender").config
    with QueueProducer(broker.bootstrap_servers, topic_prefix=PREFIX, kafka_config=config) as producer:
        producer.send(queue, value)


def define(broker: SecuredBroker, definition: dict[str, Any]) -> None:
    producer = CheckedProducer(broker.cluster("definer"))
    producer.produce(TOPICS.commands, json.dumps(definition), definition["queue"])
    producer.flush()


def write_configs(broker: SecuredBroker, folder: Path) -> tuple[str, str]:
    """Writes the activator's and the host's configurations; returns their paths. The reader has its own user."""
    how = f"command = {json.dumps([*THIS_COMMAND, 'read', '{queue}', '--wait', '2s'])}\n"
    how += f'environment = {{ QUEUE_ACTIVATION_KAFKA_CONFIG = "{broker.client_file("reader")}" }}\n'
    activator, host = folder / "activator.toml", folder / "host.toml"
    activator.write_text(f'[[programs]]\nqueue = "{ORDERS}"\nmax = 2\n{how}')
    host.write_text(f'[[procedures]]\nname = "pay"\n{how}')
    return str(activator), str(host)


def test_from_arrival_to_inactive_with_the_documented_rights_and_no_secret_anywhere(
    secured: SecuredBroker, spark: SparkApplication, tmp_path: Path
) -> None:
    activator, host = write_configs(secured, tmp_path)
    with ExitStack() as stack:
        programs = Programs(secured, tmp_path, stack, spark)
        monitor = programs.start(
            "monitor", "monitor ready", "--checkpoint-location", str(tmp_path / "checkpoint"), "--quiet-window", "1s"
        )
        programs.start("activator", "activator ready", "--config", activator, "--state-directory", str(tmp_path / "a"))
        programs.start("host", "host ready", "--config", host)
        programs.start("watch", "", "--json", "--from-beginning")
        activation = {"procedure_name": "pay", "max_queue_readers": 1}
        define(secured, {"type": "CREATE_QUEUE", "queue": PAYMENTS, "activation": activation})
        send(secured, ORDERS, b"the order")
        send(secured, PAYMENTS, b"the payment")
        read = tmp_path / "a" / "logs" / f"{ORDERS}.log"
        wait_until(lambda: read.exists() and "the order" in read.read_text(), DEADLINE_S, "the order")
        wait_until(partial(programs.has_said, "host", "the payment"), DEADLINE_S, "the payment")
        programs.assert_no_secret()
        for name in ("activator", "host"):
            wait_until(partial(programs.has_seen_an_exit, name), DEADLINE_S, f"the reader of the {name} to exit")
        states = {ORDERS: "INACTIVE", PAYMENTS: "INACTIVE"}
        wait_until(
            lambda: {name: row["state"] for name, row in programs.rows().items()} == states, DEADLINE_S, "INACTIVE"
        )
        notified = [json.loads(line) for line in programs.log("watch").splitlines()]
        assert [(one["queue"], one["reason"]) for one in notified] == [(ORDERS, "MESSAGE_ARRIVED_ON_EMPTY_QUEUE")]
        [age, tasks] = programs.run("tasks").splitlines()
        assert age.startswith("as of ")
        assert tasks == "no task is running"
        programs.assert_no_secret()
        log = programs.log("activator")
        assert " warning: " not in log
        assert f"limited: topic {ORDERS} has 1 partition, so no more than 1 of max 2" in log
        # A right that the monitor loses while it runs is named as clearly as a right that it never had.
        assert programs.log("monitor").splitlines()[-1] == "monitor ready"
        assert "warning: " not in programs.log("monitor")
        lost = Right("monitor", "Write", "topic", "queue-activations").acl("monitor", PREFIX, ORDERS)
        secured.forbid(lost)
        try:
            send(secured, ORDERS, b"another")
            assert monitor.wait(DEADLINE_S) == 2
        finally:
            secured.allow([lost])
        log = programs.log("monitor")
        sys.stdout.write(log)
        assert len(re.findall("^error: .*on a topic.*docs/security.md.*queue-activations", log, re.MULTILINE)) == 1
        assert "Traceback" not in log
        programs.assert_no_secret()


def test_no_secret_in_what_spark_can_be_made_to_say(
    secured: SecuredBroker, spark: SparkApplication, tmp_path: Path
) -> None:
    log_file = tmp_path / "verbose.log"
    connection = command(secured, "monitor", secured.client_file("monitor"))[len(THIS_COMMAND) + 1 :]
    arguments = [sys.executable, "-m", verbose_monitor.__name__, *connection]
    location = ["--checkpoint-location", str(tmp_path / "checkpoint")]
    environment = own_environment() | {"SPARK_LOCAL_DIRS": str(tmp_path / "spark")}
    with ExitStack() as stack:
        process = stack.enter_context(ChildProcess([*arguments, *location], log_file=log_file, env=environment))

        def is_told() -> bool:
            assert process.poll() is None, log_file.read_text()[-3000:]
            return verbose_monitor.TOLD in log_file.read_text()

        wait_until(is_told, DEADLINE_S, "Spark's configuration, plans and progress")
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
        log = log_file.read_text()
        for part in ("spark.redaction.regex", "== Physical Plan ==", '"numInputRows"', "DEBUG", "sasl.mechanism"):
            assert part in log, f"the log does not have {part}"
        Programs(secured, tmp_path, stack, spark).assert_no_secret()


def test_a_router_with_the_documented_rights(secured: SecuredBroker, spark: SparkApplication, tmp_path: Path) -> None:
    root = secured.cluster(SUPER_USER)
    with ExitStack() as stack:
        programs = Programs(secured, tmp_path, stack, spark)
        router = programs.start("router", "router ready", "--checkpoint-location", str(tmp_path / "checkpoint"))
        producer = CheckedProducer(root)
        producer.produce(TOPICS.service_messages, b"without an envelope", b"c")
        producer.flush()
        wait_until(lambda: last_records(root, TOPICS.service_decisions, 8, 1), DEADLINE_S, "the decision")
        assert programs.log("router") == "router ready\n", "it warns or fails"
        programs.assert_no_secret()
        # A right that the router loses while it runs ends it.
        lost = Right("router", "Write", "topic", "service-progress").acl("router", PREFIX, ORDERS)
        secured.forbid(lost)
        try:
            producer.produce(TOPICS.service_messages, b"another", b"c")
            producer.flush()
            assert router.wait(DEADLINE_S) == 2
        finally:
            secured.allow([lost])
        assert "a required right on a topic" in programs.log("router").splitlines()[-1]


@pytest.fixture
def kept_signals() -> Iterator[None]:
    """Restores the signal handlers, because commands set their own."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def refusal(
    secured: SecuredBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    kept_signals: None,  # noqa: ARG001
) -> Any:
    """Returns a function that runs a command, which must be refused, and returns its one message."""
    activator, host = write_configs(secured, tmp_path)
    more = {
        "monitor": ["--checkpoint-location", str(tmp_path / "checkpoint")],
        "read": [ORDERS],
        "activator": ["--config", activator, "--state-directory", str(tmp_path / "a")],
        "host": ["--config", host],
        "router": ["--checkpoint-location", str(tmp_path / "checkpoint")],
        "workload": ["--duration", "1s"],
    }

    def run(name: str, client_file: Path) -> str:
        words = command(secured, name, client_file, *more.get(name, []))[len(THIS_COMMAND) :]
        monkeypatch.setattr(sys, "argv", ["queue-activation", *words])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        # Clients of earlier tests in this process may still report that their broker is gone.
        said = "".join(line for line in capfd.readouterr().err.splitlines(keepends=True) if not line.startswith("%"))
        assert ended.value.code == 2, said
        assert re.fullmatch("error: [^\n]*\n", said), said
        return said

    return run


@pytest.mark.parametrize("name", COMMANDS)
def test_whoever_is_not_let_in_is_told_why_at_once(
    secured: SecuredBroker, tmp_path: Path, refusal: Any, name: str
) -> None:
    user = COMMANDS[name]
    wrong_password = secured.client_file(user, password="not this one")  # noqa: S106
    assert "Check sasl.jaas.config and sasl.mechanism" in refusal(name, wrong_password)
    _, other = make_certificate(tmp_path, "other")
    assert "ssl.truststore.location" in refusal(name, secured.client_file(user, authority=other))
    assert "Kafka does not grant this user" in refusal(name, secured.client_file("nobody"))


@pytest.mark.parametrize(
    ("name", "right"),
    [(name, right) for name in ("read", "activator", "host") for right in rights_of(name)]
    + [("monitor", Right("monitor", "Read", "topic", "queue-commands"))]
    + [("monitor", Right("monitor", "Write", "topic", "queue-ticks"))]
    + [("monitor", Right("monitor", "Read", "group", "queue-activation-monitor"))]
    + [("router", Right("router", "Read", "topic", "service-decisions"))]
    + [("router", Right("router", "Write", "topic", "service-progress"))]
    + [("router", Right("router", "Read", "group", "queue-activation-router"))]
    + [("topics", Right("topics", "Create", "topic", "queue-monitors"))],
    ids=str,
)
def test_each_right_is_needed_and_the_missing_one_is_named(
    secured: SecuredBroker, refusal: Any, name: str, right: Right
) -> None:
    acl = right.acl(COMMANDS[name], PREFIX, ORDERS)
    secured.forbid(acl)
    try:
        said = refusal(name, secured.client_file(COMMANDS[name]))
    finally:
        secured.allow([acl])
    assert acl.name in said
    assert "docs/security.md" in said


def test_a_monitor_that_loses_the_right_to_its_place_is_told_so(secured: SecuredBroker) -> None:
    right = Right("monitor", "Read", "group", GROUP_ID).acl("monitor", PREFIX, ORDERS)
    monitors = secured.cluster("monitor")
    with SoleProgram(monitors, admin.Admin(monitors), MONITOR, PREFIX, TOPICS.ticks, 1) as monitor:
        monitor.join("a checkpoint's id", "a monitor")
        monitor.wait()
        secured.forbid(right)
        try:
            wait_until(monitor.has_problem, DEADLINE_S, "the refusal")
        finally:
            secured.allow([right])
        with pytest.raises(UserError, match=r"consumer group\. See docs/security\.md"):
            monitor.check()


def test_an_activator_knows_how_long_offsets_are_kept_if_it_has_the_right(secured: SecuredBroker) -> None:
    [right] = [each for each in documented_rights() if each.kind == "cluster" and "activator" in each.client]
    acl = right.acl("activator", PREFIX, ORDERS)
    activator = admin.Admin(secured.cluster("activator"))
    assert activator.offsets_retention_ms(DEADLINE_S) == 7 * 24 * 3_600_000
    secured.forbid(acl)
    try:
        assert activator.offsets_retention_ms(DEADLINE_S) is None
    finally:
        secured.allow([acl])


@pytest.mark.parametrize("right", rights_of("sender"), ids=str)
def test_a_sender_without_a_right(secured: SecuredBroker, right: Right) -> None:
    acl = right.acl("sender", PREFIX, ORDERS)
    secured.forbid(acl)
    try:
        with pytest.raises(UserError, match=rf"{acl.name}.*docs/security.md"):
            send(secured, ORDERS, b"")
    finally:
        secured.allow([acl])


def test_a_sender_that_is_not_let_in(secured: SecuredBroker, tmp_path: Path) -> None:
    _, other = make_certificate(tmp_path, "other")
    wrong = {"password": {"sasl.password": "not this one"}, "authority": {"ssl.ca.location": str(other)}}
    for config in wrong.values():
        kafka_config = {**secured.cluster("sender").config, **config}
        with pytest.raises(UserError, match="in `kafka_config`"):
            QueueProducer(secured.bootstrap_servers, kafka_config=kafka_config)


def test_a_client_without_kafka_config_is_told_to_set_it(secured: SecuredBroker, capfd: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(admin, "ADMIN_TIMEOUT_S", 2.0)
    monkeypatch.setattr(sys, "argv", ["queue-activation", "queues", "--bootstrap-servers", secured.bootstrap_servers])
    with pytest.raises(SystemExit):
        main()
    assert "If Kafka is secured, set --kafka-config" in capfd.readouterr().err


def test_a_file_that_others_can_read_is_warned_of(secured: SecuredBroker, capfd: Any, monkeypatch: Any) -> None:
    client_file = secured.client_file("watcher")
    client_file.chmod(0o640)
    words = command(secured, "queues", client_file)[len(THIS_COMMAND) :]
    monkeypatch.setattr(sys, "argv", ["queue-activation", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)
    assert f"chmod 600 {client_file}" in capfd.readouterr().err


def test_the_file_with_the_brokers_passwords_is_private(secured: SecuredBroker) -> None:
    settings = secured.folder / "broker" / "server.properties"
    assert any(password in settings.read_text() for password in secured.passwords.values())
    assert settings.stat().st_mode & 0o777 == 0o600
