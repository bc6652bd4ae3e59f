"""The task host with a real Kafka: the tasks that it starts, how often it starts them, and its reports."""

import contextlib
import errno
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streaming.cli.presence import stopping_hosts
from streaming.core.activation import task_handlers as core
from streaming.daemons.host import start_records, task_claims, task_host
from streaming.daemons.host.task_changes import TaskEvent
from streaming.kafka.last_records import last_records
from streaming.kafka.transactions import TransactionalProducer
from streaming.system.embedded_broker import EmbeddedBroker
from streaming.system.processes import ChildProcess
from streaming.wire.service_maintenance import decode_program
from tests.support.hosting import Hosting
from tests.support.monitor_topics import DEADLINE_S, expel_members, group_in_partition
from tests.support.shared_broker import SharedBroker
from tests.support.waiting import exit_code, is_running, wait_until

STARTED: dict[str, Any] = {"type": "TASK_STARTED"}
SESSION_ENDED = {"type": "SESSION_ENDED"}
INTERRUPTED = SESSION_ENDED | {"interrupted": True}


def exited(code: int) -> dict[str, object]:
    return {"type": "TASK_EXITED", "exit_code": code}


@pytest.fixture
def make_hosting(broker: SharedBroker, tmp_path: Path) -> Iterator[Callable[[int], Hosting]]:
    made: list[Hosting] = []

    def make(partitions: int) -> Hosting:
        made.append(Hosting(broker.bootstrap_servers, tmp_path, partitions))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def hosting(make_hosting: Callable[[int], Hosting]) -> Hosting:
    return make_hosting(1)


def gated(folder: Path, name: str = "p") -> str:
    """Returns a procedure that writes its process id to the file FOLDER/TASK_ID, and runs until FOLDER/end exists."""
    script = "echo $$ > $QUEUE_ACTIVATION_TASK_ID; until [ -e end ]; do sleep 0.05; done"
    return f"name = '{name}'\ncommand = ['sh', '-c', '{script}']\ndirectory = '{folder}'"


def pid_of(folder: Path, task_id: str) -> int:
    file = folder / task_id
    return int(wait_until(lambda: file.exists() and file.read_text().strip(), DEADLINE_S, "the task to run"))


def test_a_command_gets_what_it_needs_and_its_exit_is_reported(hosting: Hosting, tmp_path: Path) -> None:
    variables = ("QUEUE", "TASK_ID", "SESSION_ID", "PROCEDURE", "EXECUTE_AS", "BOOTSTRAP_SERVERS", "TOPIC_PREFIX")
    script = " ".join(f"$QUEUE_ACTIVATION_{name}" for name in (*variables, "KAFKA_CONFIG"))
    hosting.configure(
        f"name = 'pay*'\ncommand = ['sh', '-c', 'echo $0 $PWD {script} $MORE; exit 3', '{{queue}}']\n"
        f"directory = '{tmp_path}'\nenvironment = {{ MORE = 'more' }}\nlog_file = '{tmp_path / 'pay.log'}'"
    )
    with hosting.host() as host:
        task_id = hosting.start("orders", "payment", execute_as="sa", sequence=12)
        assert hosting.wait_for_exit(task_id, 3) == [STARTED, SESSION_ENDED, exited(3)]
        host.wait_for(lambda line: line.endswith(f"orders: payment, task {task_id}: exited with code 3"), "the exit")
    words = (tmp_path / "pay.log").read_text().split()
    assert words == [
        "orders", str(tmp_path), "orders", task_id, task_id, "payment", "sa", hosting.bootstrap_servers,
        hosting.prefix, str(hosting.kafka_config), "more",
    ]  # fmt: skip
    started, ended = host.changes
    assert (started.what, ended.what, ended.exit_code) == (TaskEvent.STARTED, TaskEvent.EXITED, 3)
    line = f"orders: payment, task {task_id}: started for activation 12, process {started.process_id}"
    assert any(each.endswith(line) for each in host.lines)
    assert host.lines[0] == "host ready"


def test_functions_and_what_cannot_be_started(hosting: Hosting, tmp_path: Path) -> None:
    (tmp_path / "payments.py").write_text("def run():\n    print('paid')\n    return 5\n")
    log_file = tmp_path / "function.log"
    hosting.configure(
        *(
            f"name = '{name}'\nfunction = '{name}:run'\ndirectory = '{tmp_path}'\nlog_file = '{log_file}'"
            for name in ("payments", "no_such_module")
        ),
        "name = 'no program'\ncommand = 'no-such-program'",
        "name = 'no log'\ncommand = 'true'\nlog_file = '/no/such/folder/log'",
        "name = 'killed'\ncommand = \"sh -c 'kill -9 $$'\"",
        "name = \"nul*\"\ncommand = 'true'",
        "name = 'any*'\ncommand = 'echo {procedure}'",
    )
    reasons = {
        "not configured": "the host's configuration has no entry for the procedure 'not configured'",
        "any; thing": "'any; thing' cannot replace {procedure} in the command line: it is empty, begins with - or @, "
        "has `..` as a part of a path, or has a character other than ASCII letters, digits and . _ - : / @. "
        "A command without {procedure} has the name in its environment, as QUEUE_ACTIVATION_PROCEDURE",
        "no program": "the program 'no-such-program' is not found, or may not be executed",
    }
    with hosting.host():
        function = hosting.start("orders", "payments")
        refused = {hosting.start("orders", name): reason for name, reason in reasons.items()}
        nameless = hosting.start("orders", None)
        module, log, nul, killed = (
            hosting.start("orders", name) for name in ("no_such_module", "no log", "nul\0", "killed")
        )
        assert hosting.wait_for_exit(function, 5) == [STARTED, SESSION_ENDED, exited(5)]
        assert hosting.said_at_exit(function).endswith(f" (log {log_file})")
        for task_id, reason in refused.items():
            assert hosting.wait_for(task_id, reason=reason) == [{"type": "TASK_FAILED_TO_START", "reason": reason}]
        assert (
            "no entry for a task without a procedure"
            in hosting.wait_for(nameless, type="TASK_FAILED_TO_START")[0]["reason"]
        )
        *before, failed = hosting.wait_for(module, type="TASK_FAILED_TO_START")
        assert before == [STARTED, SESSION_ENDED]
        assert failed["reason"].startswith("the function no_such_module:run cannot be imported: ")
        assert f"(log {log_file})" in failed["reason"]
        assert "/no/such/folder/log" in hosting.wait_for(log, type="TASK_FAILED_TO_START")[-1]["reason"]
        assert "null byte" in hosting.wait_for(nul, type="TASK_FAILED_TO_START")[-1]["reason"]
        assert hosting.wait_for_exit(killed, -9) == [STARTED, SESSION_ENDED, exited(-9)]
        [name] = hosting.hosts_of(killed)
        assert hosting.said_at_exit(killed) == f"see the output of the host {name}"
    assert "paid" in log_file.read_text()
    assert "No module named 'no_such_module'" in log_file.read_text()


def test_a_task_that_the_monitor_has_given_up_is_not_started(hosting: Hosting) -> None:
    hosting.configure("name = '*'\ncommand = 'true'")
    late = [hosting.start("orders", expires_in_s=-0.001) for _ in range(3)]
    with hosting.host() as host:
        for task in late:
            (failed,) = hosting.wait_for(task, type="TASK_FAILED_TO_START")
            assert "came too late" in failed["reason"]
        wait_until(
            lambda: any("2 more tasks came too late" in line for line in host.lines), DEADLINE_S, "the line about them"
        )


def test_invalid_records_hold_up_no_task(hosting: Hosting) -> None:
    hosting.configure("name = '*'\ncommand = 'true'")
    hosting.send("orders", "{")
    hosting.send("orders", '{"type": "ANOTHER"}')
    hosting.start("orders", expires_at="soon")
    hosting.start("orders", expires_at="2999-01-01T00:00:00")
    hosting.start("orders", task_id="")
    hosting.start("orders", key="another")
    with hosting.host() as host:
        hosting.wait_for_exit(hosting.start("orders"))
    assert len([line for line in host.lines if "is not a valid task: " in line]) == 6


def test_a_record_that_is_written_again_starts_nothing(hosting: Hosting) -> None:
    hosting.configure("name = 'p'\ncommand = 'true'")
    once = [STARTED, SESSION_ENDED, exited(0)]
    with hosting.host():
        task_id = hosting.start("orders")
        hosting.wait_for_exit(task_id)
        hosting.start("orders", task_id=task_id)
        hosting.wait_for_exit(hosting.start("orders"))
    with hosting.host() as next_host:
        hosting.start("orders", task_id=task_id)
        hosting.wait_for_exit(hosting.start("orders"))
        assert hosting.reports(task_id) == once
    assert any(line.endswith("is a repeat") for line in next_host.lines)


def test_what_is_too_much_waits_in_the_topic(hosting: Hosting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_records, "_MAX_FETCHED", 2)
    hosting.configure(gated(tmp_path), "name = 'q'\ncommand = 'true'", handlers=2)
    with hosting.host() as host:
        running = [hosting.start("orders") for _ in range(2)]
        host.wait_for(lambda line: "all 2 handlers are busy: further tasks wait" in line, "the handlers to be busy")
        waiting = [hosting.start("orders", "q") for _ in range(5)]
        # A third started task would be reported within about 50 ms after these two.
        for task_id in running:
            assert hosting.wait_for(task_id, **STARTED) == [STARTED]
        assert [hosting.reports(task_id) for task_id in waiting] == [[]] * 5
        (tmp_path / "end").touch()
        for task_id in running + waiting:
            assert hosting.wait_for_exit(task_id) == [STARTED, SESSION_ENDED, exited(0)]
        # A change of the file brings more handlers and another program.
        (tmp_path / "end").unlink()
        hosting.configure(gated(tmp_path, "r"), handlers=3)
        host.wait_for(lambda line: "is in use" in line, "the new configuration")
        more = [hosting.start("orders", "r") for _ in range(3)]
        for task_id in more:
            hosting.wait_for(task_id, **STARTED)
        (tmp_path / "end").touch()


def test_a_running_task_is_reported_again_and_again(
    hosting: Hosting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "REPORT_INTERVAL_MS", 100)
    hosting.configure(gated(tmp_path))
    with hosting.host():
        task_id = hosting.start("orders")
        wait_until(lambda: len(hosting.reports(task_id)) > 3, DEADLINE_S, "reports")
        assert len(hosting.hosts_of(task_id)) == 1
        (tmp_path / "end").touch()
        *started, ended, code = hosting.wait_for_exit(task_id)
    assert started == [STARTED] * len(started)
    assert [ended, code] == [SESSION_ENDED, exited(0)]


def test_a_start_that_lacks_resources_for_a_moment_is_tried_again(
    hosting: Hosting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "RETRY_INTERVAL_MS", 100)
    lacking = 3

    def start(*arguments: object, **more: object) -> ChildProcess:
        nonlocal lacking
        lacking -= 1
        if lacking >= 0:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return ChildProcess(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(task_host, "ChildProcess", start)
    hosting.configure("name = 'p'\ncommand = 'true'")
    topic = hosting.topics.service_maintenance

    def restarted() -> bool:
        rows = [decode_program(record.value()) for record in last_records(hosting.cluster, topic, 1, 1)]
        return [(task.name, task.done) for row in rows for task in row.tasks] == [("RESTART_TASK_HANDLERS", 1)]

    with hosting.host() as host:
        task_id = hosting.start("orders")
        assert hosting.wait_for_exit(task_id) == [STARTED, SESSION_ENDED, exited(0)]
        assert len([line for line in host.lines if "will be tried again" in line]) == 3
        wait_until(restarted, DEADLINE_S, "the start among the host's periodic tasks")
        lacking = 10**9
        task_id = hosting.start("orders", expires_in_s=1)
        assert "before" in hosting.wait_for(task_id, type="TASK_FAILED_TO_START")[-1]["reason"]
        task_id = hosting.start("orders")
        hosting.wait_for(task_id, **STARTED)
    failed = hosting.wait_for(task_id, type="TASK_FAILED_TO_START")[-1]
    assert "is being stopped" in failed["reason"]
    assert failed["interrupted"]


def test_two_hosts_share_the_work(make_hosting: Callable[[int], Hosting], tmp_path: Path) -> None:
    hosting = make_hosting(2)
    hosting.configure(gated(tmp_path), handlers=1)
    queues = [group_in_partition(partition, 2) for partition in range(2)]
    with hosting.host() as first, hosting.host() as second:
        # Neither host can take both: after one task it has no handler left.
        task_ids = [hosting.start(queue) for queue in queues]
        for task_id in task_ids:
            hosting.wait_for(task_id, **STARTED)
        wait_until(lambda: first.changes and second.changes, DEADLINE_S, "each host to start one task")
        (tmp_path / "end").touch()
        for task_id in task_ids:
            assert hosting.wait_for_exit(task_id) == [STARTED, SESSION_ENDED, exited(0)]


def test_a_host_that_the_group_has_expelled_goes_on(hosting: Hosting, monkeypatch: pytest.MonkeyPatch) -> None:
    hosting.configure("name = 'p'\ncommand = 'true'")
    refused: list[list[TopicPartition]] = []
    send_offsets = TransactionalProducer.send_offsets

    def refuse_once(producer: TransactionalProducer, offsets: list[TopicPartition], group: object) -> None:
        if not refused:
            refused.append(offsets)
            raise KafkaException(KafkaError(KafkaError.REBALANCE_IN_PROGRESS))
        send_offsets(producer, offsets, group)

    monkeypatch.setattr(TransactionalProducer, "send_offsets", refuse_once)
    with hosting.host():
        hosting.wait_for_exit(hosting.start("orders"))
        expel_members(hosting.bootstrap_servers, hosting.group_id)
        task_ids = [hosting.start("orders") for _ in range(3)]
        for task_id in task_ids:
            assert hosting.wait_for_exit(task_id) == [STARTED, SESSION_ENDED, exited(0)]


def test_a_host_that_kafka_does_not_answer_begins_anew(hosting: Hosting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks in send_offsets, as librdkafka does when the group's coordinator is gone: the call never returns."""
    hosting.configure("name = 'p'\ncommand = 'true'")
    blocked = Event()
    send_offsets = TransactionalProducer.send_offsets

    def block_once(producer: TransactionalProducer, offsets: list[TopicPartition], group: object) -> None:
        if not blocked.is_set():
            blocked.set()
            Event().wait()
        send_offsets(producer, offsets, group)

    monkeypatch.setattr(task_claims, "COMMIT_TIMEOUT_S", 0.5)
    monkeypatch.setattr(TransactionalProducer, "send_offsets", block_once)
    with hosting.host() as host:
        task_ids = [hosting.start("orders") for _ in range(3)]
        host.wait_for(lambda line: "could not be taken: no answer from Kafka" in line, "the failure in the log")
        for task_id in task_ids:
            assert hosting.wait_for_exit(task_id) == [STARTED, SESSION_ENDED, exited(0)]
    assert len([change for change in host.changes if change.what is TaskEvent.STARTED]) == 3


def test_the_tasks_of_a_host_that_was_killed_end_and_are_not_run_again(hosting: Hosting, tmp_path: Path) -> None:
    hosting.configure(gated(tmp_path), "name = 'q'\ncommand = 'true'", handlers=1)
    with hosting.host_process() as killed:
        task_id = hosting.start("orders")
        pid = pid_of(tmp_path, task_id)
        waiting = hosting.start("orders", "q")
        os.kill(killed.process.pid, signal.SIGKILL)
        killed.process.wait(10)
    wait_until(lambda: not is_running(pid), 10, "the end of the task")
    with hosting.host():
        assert hosting.wait_for_exit(waiting) == [STARTED, SESSION_ENDED, exited(0)]
        assert hosting.reports(task_id) == [STARTED]


def test_sigterm_waits_for_running_tasks_and_leaves_others_to_other_hosts(hosting: Hosting, tmp_path: Path) -> None:
    hosting.configure(gated(tmp_path), "name = 'q'\ncommand = 'true'", handlers=1)
    with hosting.host_process() as first:
        running = hosting.start("orders")
        pid_of(tmp_path, running)
        waiting = hosting.start("orders", "q")
        hosting.wait_for(running, **STARTED)
        assert not stopping_hosts(hosting.cluster, hosting.topics)
        os.kill(first.process.pid, signal.SIGTERM)
        first.wait_for_line("stopping: 1 running task (orders: p) may take up to 30s to end")
        assert stopping_hosts(hosting.cluster, hosting.topics) == hosting.hosts_of(running)
        with hosting.host():
            assert hosting.wait_for_exit(waiting) == [STARTED, SESSION_ENDED, exited(0)]
        assert first.process.poll() is None
        (tmp_path / "end").touch()
        assert hosting.wait_for_exit(running) == [STARTED, SESSION_ENDED, exited(0)]
        assert exit_code(first.process) == 0
        assert not stopping_hosts(hosting.cluster, hosting.topics)
        assert re.match(r"host ready\n\d\d:\d\d:\d\d orders: p, task ", first.log())


def test_a_second_signal_or_the_stop_timeout_ends_running_tasks(hosting: Hosting, tmp_path: Path) -> None:
    hosting.configure(gated(tmp_path), stop_timeout="100ms")
    with hosting.host_process() as host:
        task_id = hosting.start("orders")
        pid_of(tmp_path, task_id)
        host.process.stop()
    assert host.process.poll() == 0
    assert hosting.wait_for_exit(task_id, -15) == [STARTED, INTERRUPTED, exited(-15) | {"interrupted": True}]
    hosting.configure(gated(tmp_path))
    with hosting.host_process() as host:
        task_id = hosting.start("orders")
        pid_of(tmp_path, task_id)
        os.kill(host.process.pid, signal.SIGINT)
        host.wait_for_line("stopping: 1 running task (orders: p)")
        os.kill(host.process.pid, signal.SIGTERM)
        assert exit_code(host.process) == 0
    assert hosting.wait_for_exit(task_id, -15) == [STARTED, INTERRUPTED, exited(-15) | {"interrupted": True}]


def test_reports_wait_until_kafka_is_back(java_and_jars: None, tmp_path: Path) -> None:  # noqa: ARG001
    data_dir = tmp_path / "broker"
    with contextlib.ExitStack() as brokers:
        with EmbeddedBroker(data_dir=data_dir) as broker, contextlib.ExitStack() as first:
            port = int(broker.bootstrap_servers.partition(":")[2])
            hosting = Hosting(broker.bootstrap_servers, tmp_path)
            hosting.configure(gated(tmp_path))
            host = first.enter_context(hosting.host())
            task_id = hosting.start("orders")
            pid = pid_of(tmp_path, task_id)
            rest = first.pop_all()
        with rest, contextlib.closing(hosting):
            host.wait_for(lambda line: "Kafka cannot be reached" in line, "the outage in the log")
            (tmp_path / "end").touch()
            wait_until(lambda: not is_running(pid), DEADLINE_S, "the end of the task")
            host.wait_for(lambda line: "exited with code 0" in line, "the exit in the log")
            brokers.enter_context(EmbeddedBroker(port, data_dir))
            assert hosting.wait_for_exit(task_id) == [STARTED, INTERRUPTED, exited(0)]
            # The first transaction after an outage may block until the host gives it up, and take the task anew.
            hosting.wait_for_exit(hosting.start("orders"), timeout_s=task_claims.COMMIT_TIMEOUT_S + DEADLINE_S)
            assert [sum(text in line for line in host.lines) for text in ("cannot be reached", "Kafka is back")] == [
                1,
                1,
            ]
