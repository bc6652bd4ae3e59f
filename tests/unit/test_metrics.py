"""The monitor's metrics and probes, without Kafka and Spark."""

import json
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection, RemoteDisconnected
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from streaming.daemons.monitor.metrics import Metrics
from streaming.daemons.monitor.queue_metrics import QueuesByState
from streaming.daemons.query import metrics as query_metrics
from streaming.daemons.query.batch_metrics import Batches
from streaming.daemons.query.metrics import why_not_ready
from streaming.daemons.router.metrics import RouterMetrics
from streaming.errors import UserError
from streaming.kafka.clients import Cluster
from streaming.kafka.end_offsets import EndOffsets
from streaming.spark.row_counts import CounterParam
from streaming.system.metrics_server import MetricsServer, ProgramMetrics
from streaming.wire.record_decoders import InvalidRecordError
from streaming.wire.topics import Topics
from tests.support.http_answers import get
from tests.support.metric_names import (
    DASHBOARD,
    metrics_in,
    metrics_of_all_programs,
    metrics_of_dashboard,
    metrics_of_rules,
    rules,
)
from tests.support.waiting import wait_until

TOPICS = Topics("p-")


def row(state: str | None, unread: int, second: int) -> bytes:
    time = f"2026-01-01T00:00:{second:02d}.000Z"
    return json.dumps({"state": state, "unread_messages": unread, "update_time": time, "more": 1}).encode()


SECOND_0_S = 1_767_225_600.0


class TestQueuesByState:
    def test_each_queue_counts_in_its_last_state(self) -> None:
        queues = QueuesByState()
        queues.apply(b"a", row("NOTIFIED", 1, 0))
        queues.apply(b"a", row("RECEIVES_OCCURRING", 1, 1))
        queues.apply(b"b", row("INACTIVE", 0, 1))
        queues.apply(b"c", row(None, 0, 1))
        queues.apply(b"d", row("INACTIVE", 0, 1))
        queues.apply(b"d", None)
        queues.apply(b"never", None)
        with pytest.raises(InvalidRecordError):
            queues.apply(b"d", b"no row of a monitor")
        assert queues.counts() == {"ABSENT": 1, "INACTIVE": 1, "NOTIFIED": 0, "RECEIVES_OCCURRING": 1}
        queues.clear()
        assert set(queues.counts().values()) == {0}

    def test_a_queue_waits_from_its_first_notification_until_a_reader_receives(self) -> None:
        queues = QueuesByState()
        assert queues.longest_wait_s(SECOND_0_S) == 0
        queues.apply(b"a", row("NOTIFIED", 2, 10))
        queues.apply(b"b", row("NOTIFIED", 1, 20))
        queues.apply(b"a", row("NOTIFIED", 2, 40))  # a time-out
        queues.apply(b"a", row("NOTIFIED", 5, 45))  # arrivals
        assert queues.longest_wait_s(SECOND_0_S + 50) == 40
        queues.apply(b"a", row("RECEIVES_OCCURRING", 4, 50))
        assert queues.longest_wait_s(SECOND_0_S + 50) == 30
        queues.apply(b"b", row("NOTIFIED", 0, 51))  # drained by other means
        assert queues.longest_wait_s(SECOND_0_S + 60) == 0

    @pytest.mark.parametrize(
        "value",
        [
            b"",
            b'{"x": ' + b"[" * 1_200,
            b'{"state": "\xff"}',
            row("ANOTHER", 1, 0),
            row("NOTIFIED", 10**30, 0),
            row("NOTIFIED", 1, 0).replace(b"2026", b"0001").replace(b"Z", b""),
        ],
    )
    def test_what_is_no_row_changes_nothing(self, value: bytes) -> None:
        queues = QueuesByState()
        queues.apply(b"a", row("NOTIFIED", 5, 10))
        with pytest.raises(InvalidRecordError):
            queues.apply(b"a", value)
        assert queues.counts()["NOTIFIED"] == 1
        assert queues.longest_wait_s(SECOND_0_S + 50) == 40

    def test_a_lower_count_begins_the_wait_anew(self) -> None:
        queues = QueuesByState()
        queues.apply(b"a", row("NOTIFIED", 5, 10))
        queues.apply(b"a", row("NOTIFIED", 4, 30))
        assert queues.longest_wait_s(SECOND_0_S + 50) == 20

    def test_a_queue_that_is_dropped_does_not_wait(self) -> None:
        queues = QueuesByState()
        queues.apply(b"a", row("NOTIFIED", 5, 10))
        queues.apply(b"a", None)
        assert queues.longest_wait_s(SECOND_0_S + 50) == 0


def progress(arrivals: int, others: int) -> dict[str, Any]:
    ends = {"p-queue-receives": {"0": 7}, "p-queue-commands": {"0": 8}}
    return {
        "durationMs": {"triggerExecution": 300},
        "sources": [
            {"endOffset": {"p-queue-arrivals": {"0": 5, "1": 6}}, "numInputRows": arrivals},
            {"endOffset": ends if others else None, "numInputRows": others},
        ],
    }


class Program(ProgramMetrics):
    """A program that works and is not ready."""

    name, working, ready = "program", "it works", "it is ready"

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("readers", "Readers", 3)

    def gather(self) -> None:
        pass

    def why_not_working(self) -> str | None:
        return None

    def why_not_ready(self) -> str | None:
        return "it starts"


class TestThreads:
    def test_an_error_of_ours_does_not_end_the_reading_of_the_view(self, monkeypatch: pytest.MonkeyPatch) -> None:
        begins: list[int] = []

        class Follower:
            is_at_end = True

            def __init__(self, *_arguments: object) -> None:
                begins.append(len(begins))

            def __enter__(self) -> "Follower":
                return self

            def __exit__(self, *_: object) -> None:
                pass

            def poll(self, _timeout_s: float) -> None:
                if len(begins) == 1:
                    raise KeyError("a bug")

        monkeypatch.setattr(query_metrics, "TopicFollower", Follower)
        monkeypatch.setattr(query_metrics, "_LOOK_INTERVAL_S", 0.01)
        monkeypatch.setattr(EndOffsets, "look", lambda _self: None)
        partitions = dict.fromkeys(TOPICS.inputs(), 1)
        server = MetricsServer("127.0.0.1", 0)
        with Metrics(server, 1_000, Cluster("127.0.0.1:1", {}), TOPICS, partitions) as metrics:
            wait_until(lambda: metrics._is_view_complete, 10, "the view")
        assert len(begins) > 1

    def test_an_error_of_ours_does_not_end_the_server(self, monkeypatch: pytest.MonkeyPatch) -> None:
        program = Program()
        with MetricsServer("127.0.0.1", 0) as server:
            server.add(program)
            monkeypatch.setattr(program, "why_not_ready", lambda: 1 / 0)
            with pytest.raises(RemoteDisconnected):
                get(server.port, "/readyz")
            assert get(server.port, "/healthz") == (200, "it works\n")


class TestProbes:
    def test_a_port_of_several_programs_says_which_one_has_a_problem(self) -> None:
        partitions = dict.fromkeys((*TOPICS.inputs(), *TOPICS.service_inputs()), 1)
        with MetricsServer("127.0.0.1", 0) as server:
            assert get(server.port, "/healthz") == (503, "it is starting\n")
            monitor = Metrics(server, 1_000, Cluster("127.0.0.1:1", {}), TOPICS, partitions)
            assert get(server.port, "/healthz") == (503, "the query is not running\n")
            monitor.query_is_active(True)
            assert get(server.port, "/healthz") == (200, "the query is running\n")
            router = RouterMetrics(server, 1_000, Cluster("127.0.0.1:1", {}), TOPICS, partitions)
            told = "monitor: the query is running\nrouter: the query is not running\n"
            assert get(server.port, "/healthz") == (503, told)
            router.query_is_active(True)
            assert get(server.port, "/healthz")[0] == 200


class TestBatches:
    def test_records_are_counted_by_source_and_the_offsets_kept(self) -> None:
        registry = CollectorRegistry()
        batches = Batches("queue_activation", {TOPICS.arrivals: "arrivals"}, registry)
        assert batches.last_committed_s is None
        batches.committed(progress(3, 0), {})
        batches.committed(progress(4, 2), {})
        read = "queue_activation_input_records_total"
        assert registry.get_sample_value(read, {"source": "arrivals"}) == 7
        assert registry.get_sample_value(read, {"source": "others"}) == 2
        assert registry.get_sample_value("queue_activation_batch_duration_seconds_sum") == pytest.approx(0.6)
        assert batches.offsets == {
            "p-queue-arrivals": {0: 5, 1: 6},
            "p-queue-receives": {0: 7},
            "p-queue-commands": {0: 8},
        }
        assert batches.last_committed_s is not None

    def test_lateness_is_the_time_from_the_reported_wake_up_to_the_next_batch(self) -> None:
        registry = CollectorRegistry()
        batches = Batches("queue_activation", {TOPICS.arrivals: "arrivals"}, registry)

        def late() -> tuple[object, object]:
            name = "queue_activation_timer_lateness_seconds"
            return registry.get_sample_value(f"{name}_count"), registry.get_sample_value(f"{name}_sum")

        batches.committed(progress(1, 0), {3: (10_000, 5_000), 4: (10_000, 60_000)})
        batches.committed(progress(1, 0), {3: (12_000, 3_000), 4: (12_000, 58_000)})  # nothing is due
        assert late() == (0, 0)
        batches.committed(progress(1, 0), {3: (15_700, 0), 4: (15_700, 54_300)})
        assert late() == (1, pytest.approx(0.7))
        batches.committed(progress(1, 0), {3: (15_700, 0), 4: (15_700, 54_300)})  # nothing new was reported
        assert late() == (1, pytest.approx(0.7))


def test_what_tasks_have_written_is_added_to_a_new_counter() -> None:
    param = CounterParam()
    first = Counter({"a": 1})
    assert param.addInPlace(first, Counter({"a": 2, "b": 3})) == {"a": 3, "b": 3}
    assert first == {"a": 1}
    assert param.zero(first) == {}


@pytest.mark.parametrize(
    ("is_active", "batch_age_s", "check_interval_s", "silence_s", "why_not"),
    [
        (True, 0.0, 1.0, 0.0, None),
        (True, 29.9, 1.0, 14.9, None),
        (True, 44.9, 15.0, 0.0, None),
        (False, 0.0, 1.0, 0.0, "the query is not running"),
        (True, None, 1.0, 0.0, "no batch has been committed yet"),
        (True, 30.6, 1.0, 0.0, "the last batch was committed 31 s ago; the limit is 30 s"),
        (True, 45.6, 15.0, 0.0, "the last batch was committed 46 s ago; the limit is 45 s"),
        (True, 0.0, 1.0, None, "Kafka does not answer"),
        (True, 0.0, 1.0, 15.1, "Kafka does not answer"),
    ],
)
def test_a_monitor_is_ready_if_its_last_batch_is_recent_and_kafka_answers(
    is_active: bool, batch_age_s: float | None, check_interval_s: float, silence_s: float | None, why_not: str | None
) -> None:
    assert why_not_ready(is_active, batch_age_s, check_interval_s, silence_s) == why_not


@pytest.fixture
def port() -> Iterator[int]:
    """A port that is in use while the test runs."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_a_port_in_use_is_one_clear_message(port: int) -> None:
    with pytest.raises(
        UserError, match=rf"127\.0\.0\.1:{port}: Address already in use\. Choose another --metrics-port"
    ):
        MetricsServer("127.0.0.1", port)


def test_a_host_that_is_not_this_machine_is_one_clear_message() -> None:
    with pytest.raises(UserError, match=r"Metrics cannot be served on 192\.0\.2\.1:9464: .*--metrics-host"):
        MetricsServer("192.0.2.1", 9464)


def test_each_path_has_its_page_and_silent_clients_block_no_others() -> None:
    with MetricsServer("127.0.0.1", 0) as server, ExitStack() as clients:
        server.add(Program())
        for _ in range(3):
            clients.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        assert get(server.port, "/healthz?x=y") == (200, "it works\n")
        assert get(server.port, "/readyz") == (503, "it starts\n")
        status, metrics = get(server.port, "/metrics")
        assert status == 200
        assert "\nreaders 3.0\n" in metrics
        assert "\nprocess_open_fds " in metrics
        assert get(server.port, "/") == (404, "There is no such page. The pages are /metrics, /healthz and /readyz.\n")
    with pytest.raises(ConnectionRefusedError):
        get(server.port, "/healthz")


@pytest.mark.parametrize("host", ["::1", "[::1]", "::"])
def test_the_address_may_be_one_of_ipv6(host: str) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with MetricsServer(host, 0) as server:
        connection = HTTPConnection("::1", server.port, timeout=5)
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b"it is starting\n"
        connection.close()


def test_a_head_request_gets_the_headers_without_the_page() -> None:
    with MetricsServer("127.0.0.1", 0) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
            client.sendall(b"HEAD /healthz HTTP/1.0\r\n\r\n")
            head, _, page = client.makefile("rb").read().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.0 503 ")
        assert b"Content-Length: 15\r\n" in head + b"\r\n"
        assert page == b""


@pytest.mark.parametrize(
    "request_line", [b"", b"\x00\xff\r\n\r\n", b"GET " + b"x" * 70_000, b"POST / HTTP/1.0\r\n\r\n"]
)
def test_a_bad_request_is_refused_and_the_next_one_is_answered(
    request_line: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with MetricsServer("127.0.0.1", 0) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
            client.sendall(request_line)
            client.shutdown(socket.SHUT_WR)
            client.makefile("rb").read()
        assert get(server.port, "/healthz")[0] == 503
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("text/plain", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text; version=1.0.0; charset=utf-8"),
    ],
)
def test_metrics_have_the_format_that_the_client_asks_for(accept: str, content_type: str) -> None:
    with MetricsServer("127.0.0.1", 0) as server:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=5)
        connection.request("GET", "/metrics", headers={"Accept": accept})
        assert connection.getresponse().headers["Content-Type"].startswith(content_type)
        connection.close()


def test_the_files_for_prometheus_name_only_documented_metrics() -> None:
    documented = metrics_of_all_programs()

    def undocumented(names: set[str]) -> set[str]:
        known = documented | {f"{name}_bucket" for name in documented}
        return {name for name in names if not name.startswith("process_")} - known

    assert undocumented(metrics_of_rules()) == set()
    assert undocumented(metrics_of_dashboard()) == set()


def test_the_dashboard_shows_every_metric() -> None:
    documented = metrics_of_all_programs()
    shown = {name.removesuffix("_bucket") for name in metrics_of_dashboard()}
    assert documented - shown == set()


def test_the_panels_of_the_dashboard_have_numbers_and_places_of_their_own() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(places)) == len(places)
    assert max(x for x, _ in places) < 24


def test_a_wrong_name_in_an_expression_would_be_noticed() -> None:
    assert metrics_in('sum by (le) (rate(a_total{b="c"}[5m])) > 1.5 or absent(d)') == {"a_total", "d"}
    assert metrics_in("frob(a[5m])") == {"frob", "a"}


def test_each_alert_is_explained() -> None:
    document = (DASHBOARD.parents[1] / "docs" / "metrics.md").read_text()
    for rule in rules():
        assert f"`{rule['alert']}`" in document
        assert rule["annotations"]["summary"]
