"""The monitor as its users see it: restarts, crashes, bad input, refusals."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from confluent_kafka import Producer

from streaming.core.activation.queue_monitor import State
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from tests.support.batch_log import merged_batches
from tests.support.monitor_topics import Tail
from tests.support.monitors import DEADLINE_S, UNHURRIED, Monitored, kill
from tests.support.shared_broker import SharedBroker
from tests.support.spark_application import SparkApplication
from tests.support.waiting import children_of, is_running, wait_until

QUEUES = [f"queue-{number}" for number in range(25)]
BACKLOG = 40_000  # more than 1 MiB in the log


@pytest.fixture
def monitored(broker: SharedBroker, spark: SparkApplication, tmp_path: Path) -> Monitored:
    return Monitored(broker.bootstrap_servers, tmp_path, [], spark)


@pytest.fixture(scope="module")
def running(
    broker: SharedBroker, spark: SparkApplication, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Monitored]:
    """Runs one monitor for the tests that need neither its start nor its end."""
    monitored = Monitored(broker.bootstrap_servers, tmp_path_factory.mktemp("running"), [*UNHURRIED], spark)
    with monitored.running():
        yield monitored


def test_an_open_transaction_on_the_ticks_holds_up_no_time_out(monitored: Monitored) -> None:
    monitored.options = ["--external-activation-timeout", "3s"]
    config = {"bootstrap.servers": monitored.bootstrap_servers, "transactional.id": monitored.prefix}
    hanging = Producer(config | {"transaction.timeout.ms": 600_000})
    hanging.init_transactions(DEADLINE_S)
    hanging.begin_transaction()
    hanging.produce(monitored.topics.ticks, b"")
    assert hanging.flush(DEADLINE_S) == 0
    try:
        with monitored.running(), monitored.activations() as activations:
            monitored.arrive("Q")
            found = activations.wait_for("Q", 3)
    finally:
        hanging.abort_transaction(DEADLINE_S)
    assert [record["reason"] for record in found[1:]] == ["TIMEOUT_EXPIRED"] * 2


def test_arrivals_in_an_aborted_transaction_do_not_count(running: Monitored) -> None:
    aborted = Producer({"bootstrap.servers": running.bootstrap_servers, "transactional.id": f"{running.prefix}aborted"})
    aborted.init_transactions(DEADLINE_S)
    aborted.begin_transaction()
    aborted.produce(running.topics.arrivals, json.dumps({"queue": "D10", "count": 9}), "D10")
    assert aborted.flush(DEADLINE_S) == 0
    with running.activations() as activations:
        running.arrive("D10")
        aborted.abort_transaction(DEADLINE_S)
        [found] = activations.wait_for("D10", 1)
    assert found["unread_messages"] == 1


def test_a_monitor_that_was_killed_still_knows_its_running_tasks(monitored: Monitored) -> None:
    monitored.options = ["--quiet-window", "1s"]
    tasks = Tail(monitored.bootstrap_servers, monitored.topics.tasks, "read_committed")

    def different_tasks() -> dict[str, dict[str, Any]]:
        # If a monitor is killed before it has committed its batch, the next one writes the same task again.
        return {task["task_id"]: task for task in (json.loads(record.value) for record in tasks.records())}

    def wait_for_tasks(count: int) -> list[dict[str, Any]]:
        wait_until(lambda: len(different_tasks()) >= count, DEADLINE_S, f"{count} tasks")
        return list(different_tasks().values())

    clause = {"procedure_name": "p", "max_queue_readers": 1}
    with monitored.running_process() as process:
        monitored.send("queue-commands", {"type": "CREATE_QUEUE", "queue": "Q", "activation": clause})
        monitored.producer.flush()
        monitored.arrive("Q", "Q", "Q")
        [first] = wait_for_tasks(1)
        kill(process)
    monitored.receive("Q")
    with monitored.running(), monitored.view() as view:
        # A quiet window after this RECEIVE one more reader would be useful, but the task limit of 1 is reached.

        def is_limit_reached(row: dict[str, Any]) -> bool:
            monitored.receive("Q", result="EMPTY", where=True)  # takes no message; the monitor checks the queue
            return bool(row["task_limit_reached"] > 0)

        row = view.wait_for("Q", is_limit_reached)
        assert (row["tasks_running"], row["max_queue_readers"]) == (1, 1)
        monitored.send("queue-receives", {"type": "TASK_EXITED", "queue": "Q", "task_id": first["task_id"]})
        monitored.producer.flush()
        tasks_seen = wait_for_tasks(2)
    tasks.close()
    assert [(task["procedure_name"], task["sequence"]) for task in tasks_seen] == [("p", 1), ("p", 2)]


def test_batch_killed_between_sink_and_commit_is_written_again_with_the_same_bytes(monitored: Monitored) -> None:
    # One tick only, so that the batch with the arrivals is the last one.
    monitored.options = ["--check-interval", "1h", "--external-activation-timeout", "none"]
    with monitored.activations() as activations:
        with monitored.running_process() as process:
            monitored.arrive(*QUEUES)
            for queue in QUEUES:
                activations.wait_for(queue, 1)
            jvm = children_of(process.pid)
            kill(process)
        wait_until(lambda: not any(map(is_running, jvm)), DEADLINE_S, "the end of the JVM")
        newest = max(int(path.name) for path in (monitored.checkpoint / "offsets").iterdir() if path.name.isdigit())
        (monitored.checkpoint / "commits" / str(newest)).unlink(missing_ok=True)
        with monitored.running():
            monitored.arrive("the next batch")
            activations.wait_for("the next batch", 1)
        written = [activations.records_of(queue) for queue in QUEUES]
    assert any(len(records) > 1 for records in written), "the batch was not written again"
    for records in written:
        assert len({(record.value, tuple(record.headers)) for record in records}) == 1
    assert len({json.loads(records[0].value)["notification_id"] for records in written}) == len(QUEUES)


@pytest.fixture(scope="module")
def behind(
    broker: SharedBroker, spark: SparkApplication, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Monitored]:
    """Runs a monitor that starts with a backlog of BACKLOG arrivals, for the tests of further options."""
    options = ["--log-batches", "--starting-offsets", "earliest", "--shards", "4", "--activation-format", "xml"]
    monitored = Monitored(broker.bootstrap_servers, tmp_path_factory.mktemp("behind"), options, spark)
    for number in range(BACKLOG):
        monitored.send("queue-arrivals", {"queue": "Q", "number": number})
    monitored.producer.flush()
    with monitored.running():
        yield monitored


def test_a_backlog_of_one_queue_is_logged_in_parts(behind: Monitored) -> None:
    with behind.view() as view:
        view.wait_for("Q", lambda row: row["unread_messages"] == BACKLOG)
        behind.arrive("Q")  # the monitor continues
        view.wait_for("Q", lambda row: row["unread_messages"] == BACKLOG + 1)
    sent = [json.loads(value) for key, value in all_records(behind, behind.topics.arrivals) if key == b"Q"]
    batches = merged_batches(all_records(behind, behind.topics.batches))["Q"]
    assert [value for batch in batches for _, value in batch["events"]] == sent
    assert len(sent) == BACKLOG + 1
    assert max(batch["parts"] for batch in batches) > 1


def all_records(monitored: Monitored, topic: str) -> list[tuple[bytes, bytes]]:
    """Returns key and value of all records of a topic; those of one key are in order."""
    tail = Tail(monitored.bootstrap_servers, topic, "read_committed")
    found = [(record.key, record.value) for record in tail.all_records()]
    tail.close()
    return found


BAD_RECORDS: list[tuple[str, bytes | None, bytes | None, str]] = [
    ("arrivals", b"good", b"{", "invalid JSON"),
    ("arrivals", b"good", b"\xff\xfe", "invalid UTF-8"),
    ("arrivals", b"good", b'{"queue": "good", "note": "\xff"}', "invalid UTF-8"),
    ("arrivals", b"good", b"[]", "Expected `object`"),
    ("arrivals", b"good", b"{}", "missing required field `queue`"),
    ("arrivals", b"good", b'{"queue": "good", "type": "RECEIVE"}', "type"),
    ("arrivals", b"good", b'{"queue": "good", "count": 0}', "count"),
    ("arrivals", b"good", b'{"queue": "good", "count": "1"}', "count"),
    ("arrivals", b"good", b'{"queue": "good", "count": 1000000001}', "count"),
    ("arrivals", None, b'{"queue": "good"}', "no key"),
    ("arrivals", b"other", b'{"queue": "good"}', "key differs"),
    ("arrivals", b"good", None, "no value"),
    ("arrivals", b"a.b.c.d", b'{"queue": "a.b.c.d"}', "one to three parts"),
    ("arrivals", b"x" * 129, b'{"queue": "' + b"x" * 129 + b'"}', "one to three parts"),
    ("arrivals", b"good", b'{"queue": "good", "note": "' + b"x" * 65536 + b'"}', "more than 65536"),
    ("arrivals", b"k" * 5000, b"v" * 900_000, "more than 65536"),
    ("receives", b"good", b'{"type": "PEEK", "queue": "good"}', "PEEK"),
    ("receives", b"good", b'{"queue": "good", "session_id": "s"}', "missing required field `type`"),
    (
        "receives",
        b"good",
        b'{"type": "RECEIVE", "queue": "good", "session_id": "s", "result": "MESSAGES"}',
        "missing required field `messages`",
    ),
    ("commands", b"good", b'{"type": "CREATE_QUEUE", "queue": "good", "status": "on"}', "status"),
    (
        "commands",
        b"good",
        b'{"type": "ALTER_QUEUE", "queue": "good", "external_activation_timeout_ms": 0}',
        "external_activation_timeout_ms",
    ),
]


def test_bad_input_becomes_dead_letters_and_the_queue_beside_it_goes_on(running: Monitored) -> None:
    for topic, key, value, _ in BAD_RECORDS:
        running.send_bytes(getattr(running.topics, topic), key, value)
    running.arrive("good")
    letters = Tail(running.bootstrap_servers, running.topics.dead_letters, "read_committed")
    with running.activations() as activations:
        good = activations.wait_for("good", 1)
        wait_until(lambda: len(letters.records()) >= len(BAD_RECORDS), DEADLINE_S, "the dead letters")
        running.receive("good")
        running.arrive("good")
        good = activations.wait_for("good", 2)
    assert [record["unread_messages"] for record in good] == [1, 1]
    found: list[tuple[str, bytes | None, bytes | None, str]] = []
    for letter in letters.records():
        headers = dict(letter.headers)
        topic = headers["source_topic"].decode().rpartition("-")[2]
        assert headers["source_partition"].isdigit()
        assert headers["source_offset"].isdigit()
        assert headers["source_timestamp"].isdigit()
        found.append((topic, letter.key, letter.value, headers["reason"].decode()))
        if "value_bytes" in headers:
            assert (len(letter.value), headers["value_bytes"]) == (256 * 1024, b"900000")
    letters.close()
    assert len(found) == len(BAD_RECORDS)
    for topic, key, value, reason in BAD_RECORDS:
        cut = (topic, key and key[:1024], value and value[: 256 * 1024])
        assert any(cut == letter[:3] and reason in letter[3] for letter in found), f"no dead letter: {cut!r}"[:300]


def test_monitors_view_follows_the_queues(running: Monitored) -> None:
    def is_in(state: State) -> Callable[[dict[str, Any]], bool]:
        return lambda row: row["state"] == state.name

    with running.view() as view:
        running.arrive("sales.dbo.orders")
        notified = view.wait_for("sales.dbo.orders", is_in(State.NOTIFIED))
        running.receive("sales.dbo.orders", result="WAITING", messages=1)
        view.wait_for("sales.dbo.orders", is_in(State.RECEIVES_OCCURRING))
        running.receive("sales.dbo.orders")
        view.wait_for("sales.dbo.orders", is_in(State.INACTIVE))
        running.send("queue-commands", {"type": "DROP_QUEUE", "queue": "sales.dbo.orders"})
        running.producer.flush()
        wait_until(lambda: view.row("sales.dbo.orders") is None, DEADLINE_S, "the tombstone")
    assert (notified["database_name"], notified["schema_name"], notified["queue_name"]) == ("sales", "dbo", "orders")
    assert (notified["unread_messages"], notified["activation_sequence"]) == (1, 1)


def test_shuffle_files_are_deleted_after_their_batch(running: Monitored, spark: SparkApplication) -> None:
    scratch = spark.scratch
    with running.activations() as activations:
        for number in range(3):
            running.arrive(f"queue-{number}")
            activations.wait_for(f"queue-{number}", 1)
    assert list(scratch.rglob("blockmgr-*"))
    # Ticks bring further batches, but most of the time no batch is in progress.
    wait_until(lambda: not list(scratch.rglob("shuffle_*")), DEADLINE_S, "a moment without shuffle files")


def test_it_ends_when_its_ticks_are_gone_and_another_checkpoint_goes_on_from_there(monitored: Monitored) -> None:
    monitored.options = ["--external-activation-timeout", "2s"]
    ticks = monitored.topics.ticks
    cluster = Cluster(monitored.bootstrap_servers, {})
    client = cluster.admin_client()
    with monitored.activations() as activations:
        with monitored.running() as process:
            monitored.arrive("Q")
            activations.wait_for("Q", 1)
            client.delete_topics([ticks])[ticks].result()
            assert process.wait(DEADLINE_S) == 1
        errors = [line for line in monitored.log().splitlines() if line.startswith("error:")]
        assert len(errors) == 1
        assert f"deleted and created again: {ticks}. " in errors[0]
        assert "Traceback" not in monitored.log()
        specs = [spec for spec in monitored.topics.specs() if spec.name == ticks]
        wait_until(lambda: Admin(cluster).create_topics(specs, 1, 1), DEADLINE_S, "the new topic")
        refused = monitored.fails()
        assert refused.returncode == 2
        assert "set --continue-from to the old one" in refused.stderr
        activations.read_all()
        last = activations.of("Q")[-1]["sequence"]
        monitored.options += ["--continue-from", str(monitored.checkpoint)]
        monitored.checkpoint = monitored.folder / "another"
        with monitored.running():
            found = wait_until(
                lambda: [one for one in activations.of("Q") if one["sequence"] > last], DEADLINE_S, "an activation"
            )
    assert (found[0]["sequence"], found[0]["reason"]) == (last + 1, "TIMEOUT_EXPIRED")


def _make_incomplete(checkpoint: Path) -> None:
    """Leaves a checkpoint as a monitor does that ends within its last batch."""
    commits, offsets = (
        max(int(file.name) for file in (checkpoint / folder).iterdir() if file.name.isdigit())
        for folder in ("commits", "offsets")
    )
    if commits == offsets:
        (checkpoint / "commits" / str(commits)).unlink()


def test_notifications_can_be_xml(behind: Monitored) -> None:
    with behind.activations() as activations:
        behind.arrive("XML")
        [record] = wait_until(lambda: activations.records_of("XML"), DEADLINE_S, "the notification")
    assert ElementTree.fromstring(record.value).findtext("EventType") == "QUEUE_ACTIVATION"
    assert dict(record.headers)["ce_reason"] == b"MESSAGE_ARRIVED_ON_EMPTY_QUEUE"


def test_another_number_of_shards_than_the_checkpoints_is_refused(
    behind: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(behind, "options", ["--shards", "5"])
    refused = behind.fails()
    assert refused.returncode == 2
    assert "has 4 shards, not 5" in refused.stderr


def test_missing_topics_are_named_with_the_command_that_creates_them(monitored: Monitored) -> None:
    monitored.prefix = "nowhere-"
    refused = monitored.fails()
    assert refused.returncode == 2
    assert "nowhere-queue-arrivals" in refused.stderr
    assert "queue-activation topics" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_java_that_does_not_start_is_one_message_with_its_own_words(monitored: Monitored) -> None:
    monitored.options, monitored.application = ["--driver-memory", "9000000g"], None
    refused = monitored.fails()
    assert refused.returncode == 2, refused.stderr
    assert refused.stderr.startswith("error: Java does not start:\n")
    assert "heap" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_unreachable_kafka_is_one_clear_message(monitored: Monitored) -> None:
    monitored.bootstrap_servers = "127.0.0.1:1"
    refused = monitored.fails()
    assert refused.returncode == 2
    assert "Kafka cannot be reached at 127.0.0.1:1" in refused.stderr
    assert "Traceback" not in refused.stderr
