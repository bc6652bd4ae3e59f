"""A signal stops the monitor: between batches, during a batch, under load, while it starts, and without Kafka."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from streaming.system.embedded_broker import EmbeddedBroker
from streaming.system.processes import ChildProcess, own_environment
from tests.support.monitors import DEADLINE_S, Monitored
from tests.support.shared_broker import SharedBroker
from tests.support.waiting import children_of, is_running, processes_with, wait_until

QUEUES = [f"queue-{number}" for number in range(25)]
# Far longer than a batch and the end of Spark take, and far shorter than the steady traffic lasts.
STOP_DEADLINE_S = 30.0


@pytest.fixture
def monitored(broker: SharedBroker, tmp_path: Path) -> Monitored:
    return Monitored(broker.bootstrap_servers, tmp_path, [])


def jvm_of(monitor: int) -> set[int]:
    return children_of(monitor) & processes_with("org.apache.spark.deploy.SparkSubmit")


def have_ended(processes: set[int]) -> bool:
    return not any(map(is_running, processes))


def ends_in_order(monitored: Monitored, process: ChildProcess, number: signal.Signals) -> None:
    """Fails unless the signal ends the monitor with exit code 0, without a leftover process or a further log line."""
    jvm = children_of(process.pid)
    assert jvm
    os.kill(process.pid, number)
    assert process.wait(STOP_DEADLINE_S) == 0
    wait_until(partial(have_ended, jvm), DEADLINE_S, "the end of the JVM")
    assert monitored.log() == "monitor ready\nmonitor stopped\n", "a healthy monitor logs nothing else"


def test_ctrl_c_ends_it_with_exit_code_0_and_leaves_no_process(monitored: Monitored) -> None:
    with monitored.running_process() as process:
        ends_in_order(monitored, process, signal.SIGINT)


@contextmanager
def steady_traffic(monitored: Monitored) -> Iterator[None]:
    """Sends so many arrivals for many queues that the next batch always has some."""
    is_over = threading.Event()

    def send() -> None:
        while not is_over.wait(0.002):
            for queue in QUEUES:
                monitored.send("queue-arrivals", {"queue": queue})

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def batches(monitored: Monitored, folder: str) -> set[int]:
    """Returns the batches in the checkpoint's folder `offsets`, which have begun, or `commits`, which have ended."""
    return {int(path.name) for path in (monitored.checkpoint / folder).iterdir() if path.name.isdigit()}


def test_steady_traffic_does_not_keep_sigterm_from_ending_it_after_the_batch_in_progress(monitored: Monitored) -> None:
    monitored.options = ["--trigger-interval", "1ms"]
    with monitored.running_process() as process, steady_traffic(monitored):
        before = max(batches(monitored, "commits"))
        wait_until(lambda: max(batches(monitored, "commits")) > before + 5, DEADLINE_S, "five further batches")
        wait_until(
            lambda: max(batches(monitored, "offsets")) > max(batches(monitored, "commits")), DEADLINE_S, "a batch"
        )
        in_progress = max(batches(monitored, "offsets"))
        ends_in_order(monitored, process, signal.SIGTERM)
    assert in_progress in batches(monitored, "commits")


@pytest.mark.parametrize("is_busy", [False, True], ids=["between batches", "in a batch"])
def test_a_kafka_that_stands_still_does_not_keep_it_from_stopping(
    java_and_jars: None,  # noqa: ARG001
    tmp_path: Path,
    is_busy: bool,
) -> None:
    with EmbeddedBroker() as broker:
        # With this interval, no tick follows the first one.
        monitored = Monitored(broker.bootstrap_servers, tmp_path, ["--check-interval", "1h"])
        with monitored.running_process() as process:
            if is_busy:
                monitored.arrive(*QUEUES)
                wait_until(lambda: len(batches(monitored, "offsets")) > 1, DEADLINE_S, "a batch")
            os.kill(broker.pid, signal.SIGSTOP)
            try:
                os.kill(process.pid, signal.SIGTERM)
                if is_busy:
                    # Until a second signal, the monitor waits for the batch in progress.
                    os.kill(process.pid, signal.SIGINT)
                assert process.wait(STOP_DEADLINE_S) == 0
            finally:
                os.kill(broker.pid, signal.SIGCONT)
        assert "monitor stopped" in monitored.log()


def test_a_signal_while_spark_starts_ends_it_with_exit_code_0_and_leaves_no_process(monitored: Monitored) -> None:
    log_file = monitored.folder / "monitor.log"
    for number in (signal.SIGINT, signal.SIGTERM):
        with ChildProcess(monitored.command(), log_file=log_file, env=own_environment()) as process:
            jvm = wait_until(partial(jvm_of, process.pid), DEADLINE_S, "the JVM")
            os.kill(process.pid, number)
            assert process.wait(STOP_DEADLINE_S) == 0
            wait_until(partial(have_ended, jvm), DEADLINE_S, "the end of the JVM")
        assert log_file.read_text() == "monitor stopped\n"
        log_file.unlink()
