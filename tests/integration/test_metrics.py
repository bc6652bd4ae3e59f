"""The metrics of a running monitor, and whether the files for Prometheus and Grafana name only existing metrics."""

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support.command_lines import ROOT
from tests.support.http_answers import free_port, get
from tests.support.metric_names import (
    documented_metrics,
    documented_observer_metrics,
    documented_router_metrics,
    documented_transport_metrics,
    metrics_of_dashboard,
    metrics_of_rules,
)
from tests.support.monitors import DEADLINE_S, Monitored
from tests.support.shared_broker import SharedBroker
from tests.support.waiting import wait_until

TIMEOUT_S = 2
Samples = dict[tuple[str, str], float]


@pytest.fixture
def monitored(broker: SharedBroker, tmp_path: Path) -> Monitored:
    options = ["--external-activation-timeout", f"{TIMEOUT_S}s", "--quiet-window", "1h", "--log-format", "json"]
    return Monitored(broker.bootstrap_servers, tmp_path, [*options, "--metrics-port", str(free_port())])


class Seen:
    """The HTTP answers of a running monitor."""

    def __init__(self, port: int) -> None:
        self.port = port

    def status(self, path: str) -> int:
        return get(self.port, path)[0]

    def families(self) -> set[str]:
        """Returns the names of all samples."""
        return {name for name, _ in self.samples()}

    def samples(self) -> Samples:
        """Returns all samples: (name, value of the only label) -> value."""
        return {
            (sample.name, next(iter(sample.labels.values()), "")): sample.value
            for family in text_string_to_metric_families(get(self.port, "/metrics")[1])
            for sample in family.samples
        }

    def wait_for(self, condition: Callable[[Samples], bool], what: str) -> Samples:
        return wait_until(lambda: found if condition(found := self.samples()) else {}, DEADLINE_S, what)


def test_a_monitor_tells_what_it_does_and_whether_it_works(monitored: Monitored) -> None:
    seen = Seen(int(monitored.options[-1]))
    with monitored.running() as process:
        wait_until(lambda: seen.status("/readyz") == 200, DEADLINE_S, "readyz")
        assert (seen.status("/healthz"), seen.status("/")) == (200, 404)
        begin_s = time.monotonic()
        check_counts(monitored, seen, begin_s)
        check_waiting_in_vain(monitored, seen, begin_s)
        check_files(seen)
        check_the_containers_health(seen)
        assert process.stop(30) == 0
    with pytest.raises(ConnectionRefusedError):
        seen.status("/healthz")
    log = next(monitored.folder.glob("monitor-*.log")).read_text()
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert any("/metrics" in line["message"] and line["level"] == "INFO" for line in lines)
    assert [line for line in log.splitlines() if line.startswith("monitor ")] == ["monitor ready", "monitor stopped"]


def test_a_port_in_use_is_one_message_before_spark_starts(monitored: Monitored) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(monitored.options[-1])))
        taken.listen()
        refused = monitored.fails()
    assert (refused.returncode, refused.stdout) == (2, "")
    [line] = refused.stderr.splitlines()
    assert "Address already in use" in json.loads(line)["message"]


def check_counts(monitored: Monitored, seen: Seen, begin_s: float) -> None:
    before = seen.samples()
    clause = {"procedure_name": "p", "max_queue_readers": 1}
    monitored.send("queue-commands", {"type": "CREATE_QUEUE", "queue": "internal", "activation": clause})
    monitored.producer.flush()
    seen.wait_for(lambda found: found.get(("queue_activation_queues", "INACTIVE")) == 1, "the queue that was created")
    monitored.arrive("read", "internal", "forgotten", *["busy"] * 40)
    for number in range(3):
        monitored.send_bytes(monitored.topics.arrivals, b"bad", b"bad %d" % number)
    monitored.producer.flush()
    seen.wait_for(lambda found: found["queue_activation_queues", "NOTIFIED"] == 4, "the activation of all queues")
    for queue in ("read", "internal", "busy"):
        monitored.receive(queue)
    states = {"INACTIVE": 2, "RECEIVES_OCCURRING": 1, "NOTIFIED": 1, "ABSENT": 0}
    arrivals = "queue_activation_input_records_total", "arrivals"
    others = "queue_activation_input_records_total", "others"  # the command and the receives
    # Spark reports a batch after its rows are written.
    after = seen.wait_for(
        lambda found: (
            all(found["queue_activation_queues", state] == count for state, count in states.items())
            and found[arrivals] >= before[arrivals] + 46
            and found[others] >= before[others] + 4
        ),
        "the states of the queues, and the counts of the records",
    )

    def more(name: str, label: str) -> float:
        return after[name, label] - before[name, label]

    written = "queue_activation_output_records_total"
    assert more(*arrivals) == 46
    assert more(written, "queue-dead-letters") == 3
    assert more(written, "queue-tasks") == 1
    assert after["queue_activation_batch_duration_seconds_count", ""] >= 3
    assert 0 <= after["queue_activation_last_batch_age_seconds", ""] < time.monotonic() - begin_s
    topics = [f"queue-{name}" for name in ("arrivals", "receives", "commands")]
    seen.wait_for(
        lambda found: [found.get(("queue_activation_lag_records", topic)) for topic in topics] == [0, 0, 0], "no lag"
    )


def check_waiting_in_vain(monitored: Monitored, seen: Seen, begin_s: float) -> None:
    def age_s(found: Samples) -> float:
        return found["queue_activation_oldest_notified_age_seconds", ""]

    # Each time-out that expires brings another notification. That does not count as an answer of a reader.
    lateness = "queue_activation_timer_lateness_seconds"
    late = seen.wait_for(
        lambda found: age_s(found) > 2 * TIMEOUT_S and found[f"{lateness}_count", ""] >= 2, "two time-outs"
    )
    # No time-out began before this test, so none can be later than this.
    longest_s = time.monotonic() - begin_s - TIMEOUT_S
    assert 0 <= late[f"{lateness}_sum", ""] / late[f"{lateness}_count", ""] < longest_s
    with monitored.activations() as activations:
        assert len(activations.wait_for("forgotten", 3)) >= 3
        monitored.receive("forgotten")
        seen.wait_for(lambda found: age_s(found) == 0, "the end of the waiting")
        queues = ("read", "internal", "forgotten", "busy")
        written = "queue_activation_output_records_total", "queue-activations"
        seen.wait_for(
            lambda found: found[written] == sum(len(activations.of(queue)) for queue in queues), "the activations"
        )


def check_files(seen: Seen) -> None:
    told = seen.families()
    others = documented_router_metrics() | documented_transport_metrics() | documented_observer_metrics()
    others |= {f"{name}_bucket" for name in documented_router_metrics()}
    assert metrics_of_rules() - others <= told
    assert metrics_of_dashboard() - others <= told
    own = {re.sub("_(bucket|sum|count)$", "", name) for name in told if name.startswith("queue_activation_")}
    assert documented_metrics() == own


def check_the_containers_health(seen: Seen) -> None:
    """Runs the health check of docker-compose.yml's container on this machine."""
    kind, program, *arguments = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["run"][
        "healthcheck"
    ]["test"]
    assert (kind, program) == ("CMD", "python")
    command = [sys.executable, *(argument.replace(":9464", f":{seen.port}") for argument in arguments)]
    subprocess.run(command, check=True)
