import os
import re
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streaming.errors import UserError
from streaming.system.embedded_broker import EmbeddedBroker
from tests.support.shared_broker import SharedBroker
from tests.support.waiting import children_of, exit_code, is_running, processes_with, wait_until

FOREGROUND = """
import sys
from pathlib import Path
from streaming.system.embedded_broker import run_broker_in_foreground
sys.exit(run_broker_in_foreground(0, Path(sys.argv[1]) if sys.argv[1:] else None))
"""


def create_topic(bootstrap_servers: str) -> str:
    topic = f"test-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.create_topics([NewTopic(topic, 2, 1)]).values():
        future.result(30)
    return topic


def produce(bootstrap_servers: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.commit_transaction(30)


def consume(bootstrap_servers: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": f"{topic}-{uuid.uuid4()}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values: list[bytes] = []

    def is_complete() -> bool:
        record = consumer.poll(0.1)
        if record is not None and record.error() is None:
            values.append(record.value() or b"")
        return len(values) >= count

    try:
        wait_until(is_complete, 30, f"{count} records")
    finally:
        consumer.close()
    return sorted(values)


@contextmanager
def foreground(*arguments: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Runs the foreground function; yields the process and its bootstrap servers."""
    command = [sys.executable, "-c", FOREGROUND, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.fullmatch(r"broker ready (127\.0\.0\.1:\d+)\n", line)
            assert found, line
            yield process, found.group(1)
        finally:
            process.kill()


def test_records_go_through_it(broker: SharedBroker) -> None:
    topic = create_topic(broker.bootstrap_servers)
    produce(broker.bootstrap_servers, topic, [b"1", b"2", b"3"])
    assert consume(broker.bootstrap_servers, topic, 3) == [b"1", b"2", b"3"]


def test_an_unknown_topic_is_not_created(broker: SharedBroker) -> None:
    topic = f"test-{uuid.uuid4()}"
    metadata = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(topic, timeout=30)
    error = metadata.topics[topic].error
    assert error is not None
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_data_directory_outlives_the_broker(java_and_jars: None, tmp_path: Path) -> None:  # noqa: ARG001
    data_dir = tmp_path / "data, with blanks and a comma"
    with EmbeddedBroker(data_dir=data_dir) as first:
        topic = create_topic(first.bootstrap_servers)
        produce(first.bootstrap_servers, topic, [b"kept"])
        pid = first.pid
    assert not is_running(pid)
    with EmbeddedBroker(data_dir=data_dir) as second:
        assert consume(second.bootstrap_servers, topic, 1) == [b"kept"]
        with (
            pytest.raises(UserError, match="Another broker uses the data directory"),
            EmbeddedBroker(data_dir=data_dir),
        ):
            pass
        # With a data directory, records survive even a kill.
        os.kill(second.pid, signal.SIGKILL)
        with pytest.raises(UserError, match=r"ended with exit code -9\. The end of its log"):
            second.wait()
    with EmbeddedBroker(data_dir=data_dir) as third:
        assert consume(third.bootstrap_servers, topic, 1) == [b"kept"]


def test_without_a_data_directory_nothing_is_left(
    java_and_jars: None,  # noqa: ARG001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = children_of(os.getpid())
    with EmbeddedBroker() as broker:
        pid = broker.pid
        assert len(list(tmp_path.iterdir())) == 1
    assert not is_running(pid)
    assert children_of(os.getpid()) == before
    assert list(tmp_path.iterdir()) == []


def test_a_taken_port_is_named(java_and_jars: None) -> None:  # noqa: ARG001
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=rf"cannot listen on 127\.0\.0\.1:{port}: .*another port with --port"):
            EmbeddedBroker(port).__enter__()


def test_a_data_directory_that_cannot_be_used_is_named(java_and_jars: None, tmp_path: Path) -> None:  # noqa: ARG001
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"data directory cannot be used: .*Choose a writable folder"):
        EmbeddedBroker(data_dir=tmp_path / "file").__enter__()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_in_the_foreground_it_ends_cleanly(java_and_jars: None, tmp_path: Path, number: signal.Signals) -> None:  # noqa: ARG001
    with foreground(str(tmp_path / "data")) as (process, bootstrap_servers):
        assert AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(timeout=10).brokers
        process.send_signal(number)
        assert exit_code(process) == 0
    assert not processes_with(str(tmp_path))
    assert (tmp_path / "data" / "kafka" / ".kafka_cleanshutdown").exists()


def test_it_ends_when_its_parent_is_killed(java_and_jars: None, tmp_path: Path) -> None:  # noqa: ARG001
    with foreground(str(tmp_path / "data")) as (process, _):
        (jvm,) = (pid for pid in children_of(process.pid) if "java" in Path(f"/proc/{pid}/exe").readlink().name)
        process.kill()
        wait_until(lambda: not is_running(jvm), 15, "the end of the JVM")
